# Engines of sums with a bias.
