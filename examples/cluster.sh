#!/usr/bin/env bash
# A Slurm job of 8 nodes, one rank each, every node with a disk of its own under /local.
# Submit again with RESUME=1 to go on after a time limit: sbatch --export=ALL,RESUME=1 cluster.sh
#SBATCH --job-name=outgrid
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@120
set -euo pipefail

out=$SLURM_SUBMIT_DIR/wave.run
disks='scratch="/local/outgrid/{rank}"'
# pmi2 for the MPICH of pip; "srun --mpi=list" has others, for the MPI of the site. A rank that dies
# ends the job, for RESUME=1, only if srun is told to.
start() { srun --mpi=pmi2 --kill-on-bad-exit=1 outgrid "$@"; }
if [ "${RESUME:-}" ]; then
    start resume "$out" --set "$disks"
else
    start run wave.toml --out "$out" --set "$disks"
fi
