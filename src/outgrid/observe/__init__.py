"""What watches a run: receivers, snapshots, reductions, previews, values that are not finite."""
