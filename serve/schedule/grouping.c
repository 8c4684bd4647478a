#include "serve/schedule/grouping.h"

#include <math.h>

void ct_group_lengths(const ct_grouping *g, const int64_t *length, int n, double *best, int *from,
                      int *end, int *n_p)
{
    int n_group = 0;

    best[0] = 0;
    for (int i = 1; i <= n; i++) {
        best[i] = INFINITY;
        for (int j = i - 1; j >= 0; j--) {
            int64_t count = i - j;
            double s;

            if ((count > 1) &&
                ((count > g->most_count) || (length[i - 1] > g->most_tokens / count)))
                break; /* and so with every earlier j */
            s = best[j] + g->cost(g->ctx, length[i - 1], count);
            if (s < best[i]) {
                best[i] = s;
                from[i] = j;
            }
        }
    }
    for (int i = n; i > 0; i = from[i]) end[n_group++] = i;
    for (int a = 0, b = n_group - 1; a < b; a++, b--) {
        int swap = end[a];

        end[a] = end[b];
        end[b] = swap;
    }
    *n_p = n_group;
}
