/* sign.c for a simulation: payloads have their size and no content; what is done to them takes its
 * time, at three times the bandwidth of additions. */
#include "comm/reduce.h"
#include "comm/sign.h"

enum { TO_ENCODE = 8, TO_ADD = 4 /* bytes of memory traffic that an element costs, about */ };

static void charge(int64_t traffic, int n_thread)
{
    ct_reduce_add(CT_U8, traffic / 3, NULL, NULL, n_thread);
}

ct_status ct_sign_encode(const ct_sign_cut *c, const ct_accum *a, int skip, void *payload)
{
    (void)skip;
    (void)payload;
    ct_accum_run(a);
    charge(TO_ENCODE * c->n, a->n_thread);
    return CT_OK;
}

ct_status ct_sign_take(float *v, int64_t n, int n_thread, void *payload)
{
    (void)v;
    (void)payload;
    charge(TO_ENCODE * n, n_thread);
    return CT_OK;
}

ct_status ct_sign_add(const void *payload, size_t bytes, float *v, int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    charge(TO_ADD * n, n_thread);
    return CT_OK;
}

ct_status ct_sign_sum(const void *const *payload, const size_t *bytes, int n_payload, float *v,
                      int64_t n, int n_thread)
{
    (void)payload;
    (void)bytes;
    (void)v;
    charge(TO_ADD * n * (n_payload + 1), n_thread);
    return CT_OK;
}
