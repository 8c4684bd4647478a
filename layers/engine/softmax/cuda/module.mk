$(call needs,CUDNN,softmax_cudnn)
