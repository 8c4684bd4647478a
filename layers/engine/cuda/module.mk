# What engines share on CUDA.
$(call needs,CUDNN,library_cudnn)
