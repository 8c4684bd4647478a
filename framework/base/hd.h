/** @file hd.h  CT_HD: before a function that runs on the host and on CUDA devices alike. */
#ifndef CT_HD_H
#define CT_HD_H

#ifdef __CUDACC__
#define CT_HD __host__ __device__
#else
#define CT_HD
#endif

#endif
