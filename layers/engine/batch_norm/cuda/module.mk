$(call needs,CUDNN,batch_norm_cudnn)
