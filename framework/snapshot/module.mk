# Snapshots, and weights in and out.
