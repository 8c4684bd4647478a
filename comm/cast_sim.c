/* cast.c for a simulation: the traffic takes its time, at three times the bandwidth of additions.
 */
#include "comm/cast.h"

#include "comm/reduce.h"

void ct_cast_encode(ct_dtype dtype, const float *v, int64_t n, float scale, int n_thread,
                    uint16_t *out)
{
    (void)dtype;
    (void)v;
    (void)scale;
    (void)out;
    ct_reduce_add(CT_U8, 2 * n, NULL, NULL, n_thread);
}

void ct_cast_decode(ct_dtype dtype, const uint16_t *in, int64_t n, float scale, int n_thread,
                    float *v)
{
    ct_cast_encode(dtype, v, n, scale, n_thread, NULL);
    (void)in;
}

uint8_t ct_cast_exponent(const float *v, int64_t n, int n_thread)
{
    (void)v;
    ct_reduce_add(CT_U8, 4 * n / 3, NULL, NULL, n_thread);
    return 127;
}

float ct_cast_scale(uint8_t exponent, int ranks)
{
    (void)exponent;
    (void)ranks;
    return 1;
}
