/* A machine of 40 960 nodes read, placed and drawn: milliseconds, median of repetitions; every
 * placement. Fails where one machine takes a second or more. Usage: bench_topo [repetitions] */
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "framework/base/sort.h"
#include "topology/topo.h"

enum { MAX_REPEAT = 101 };

typedef struct times {
    double read[MAX_REPEAT], place[MAX_REPEAT], meet[MAX_REPEAT], draw[MAX_REPEAT];
} times;

/* Sums the level at which a rank meets its neighbours and partners at every power of two. */
static long meet_all(const ct_topo *t)
{
    long sum = 0;

    for (int r = 0; r < t->n_rank; ++r) {
        for (int d = 1; d < t->n_rank; d *= 2) sum += ct_topo_meet(t, r, (r + d) % t->n_rank);
    }
    return sum;
}

static bool run_once(const char *placement, times *ms, int i)
{
    double start = ct_clock_s();
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_text text = { 0 };
    bool good = (ct_machine_read("taihulight", &m) == CT_OK);

    ms->read[i] = (ct_clock_s() - start) * 1e3;
    start = ct_clock_s();
    good = good && (ct_topo_place(m, 40960, 1, placement, &t) == CT_OK);
    ms->place[i] = (ct_clock_s() - start) * 1e3;
    start = ct_clock_s();
    good = good && (meet_all(t) > 0);
    ms->meet[i] = (ct_clock_s() - start) * 1e3;
    start = ct_clock_s();
    good = good && (ct_topo_draw(t, &text) == CT_OK);
    ms->draw[i] = (ct_clock_s() - start) * 1e3;
    ct_text_destroy(&text);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
    return good;
}

int main(int argc, char **argv)
{
    static const char *const placement[] = { "block", "cyclic", "random:1", "scatter:1" };
    int repeat = (argc > 1) ? atoi(argv[1]) : 5;
    bool good = true;
    times ms;

    if ((repeat < 1) || (repeat > MAX_REPEAT)) repeat = 5;
    printf("TaihuLight, 40960 nodes, ms (median of %d)\n%-10s %8s %8s %16s %8s\n", repeat,
           "placement", "read", "place", "655360 meetings", "draw");
    for (size_t p = 0; p < sizeof(placement) / sizeof(placement[0]); ++p) {
        double total;

        for (int i = 0; i < repeat; ++i) {
            if (!run_once(placement[p], &ms, i)) return 1;
        }
        total = ct_median(ms.read, repeat) + ct_median(ms.place, repeat);
        printf("%-10s %8.2f %8.2f %16.2f %8.2f\n", placement[p], ct_median(ms.read, repeat),
               ct_median(ms.place, repeat), ct_median(ms.meet, repeat), ct_median(ms.draw, repeat));
        good = good && (total < 1000);
    }
    if (!good) printf("more than a second\n");
    return good ? 0 : 1;
}
