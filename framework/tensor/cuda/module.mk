# Memory, streams, graphs and sums of a CUDA device.
$(call needs,NCCL,sum_nccl)
