$(call needs,CUDNN,conv_cudnn)
