$(call needs,CUDNN,lrn_cudnn)
