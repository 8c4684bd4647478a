$(call needs,CUDNN,pool_cudnn)
