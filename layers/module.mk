# What layers share.
