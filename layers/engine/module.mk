# The table of engines, and plans.
