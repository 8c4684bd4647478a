/** @file nvToolsExt.h  NVTX's ranges, counted. */
#ifndef CT_EMULATED_NVTX_H
#define CT_EMULATED_NVTX_H

extern "C" int nvtxRangePushA(const char *name);
extern "C" int nvtxRangePop(void);
/** Ranges that were begun, and those open now; one that ends without a begin ends the program. */
extern "C" int ct_emulated_ranges(int *open_p);

#endif
