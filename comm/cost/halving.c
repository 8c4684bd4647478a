#include "comm/cost/halving.h"

void ct_halving_begin(ct_halving *h, int m, int i, int64_t a, int64_t b)
{
    *h = (ct_halving){ .m = m, .i = i, .offset = 0, .stride = 1, .a = a, .b = b };
}

bool ct_halving_next(ct_halving *h, ct_halving_round *round_p)
{
    int even = (h->m + 1) / 2, other = h->i ^ 1;
    bool odd = (h->i & 1) != 0;
    int64_t cut = h->a + (h->b - h->a) * even / h->m;
    ct_halving_round r = { .n_from = 0 };

    if (h->m == 1) return false;
    r.keep_a = odd ? cut : h->a;
    r.keep_b = odd ? h->b : cut;
    r.send_a = odd ? h->a : cut;
    r.send_b = odd ? cut : h->b;
    if (other < h->m) r.from[r.n_from++] = h->offset + other * h->stride;
    if (odd && (h->m % 2 == 1) && (h->i == h->m - 2))
        r.from[r.n_from++] = h->offset + (h->m - 1) * h->stride;
    r.to = h->offset + ((other < h->m) ? other : h->m - 2) * h->stride;
    h->offset += odd ? h->stride : 0;
    h->stride *= 2;
    h->m = odd ? h->m - even : even;
    h->i /= 2;
    h->a = r.keep_a;
    h->b = r.keep_b;
    *round_p = r;
    return true;
}

int ct_halving_rounds(int m)
{
    int k = 0;

    while (((int64_t)1 << k) < m) k += 1;
    return k;
}
