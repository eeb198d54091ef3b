#!/usr/bin/env bash
# A Slurm job of 8 nodes, one rank each, every node with a disk of its own under /local.
# After a time limit submit it again: --continue resumes the run.
#SBATCH --job-name=outgrid
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
set -euo pipefail

out=$SLURM_SUBMIT_DIR/wave.run
disks='scratch="/local/{rank}"'
# pmi2 is for the MPICH of pip; "srun --mpi=list" has others, for the MPI of the site. If a rank dies,
# --kill-on-bad-exit=1 ends the job. Several ranks keep no previews. On tier direct the grid is on disk,
# also if it fits in memory, so that the run can be resumed.
srun --mpi=pmi2 --kill-on-bad-exit=1 \
    outgrid run wave.toml --continue --memory 2GiB --tier direct --out "$out" --set "$disks" --set preview=0
