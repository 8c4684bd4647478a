#include "runtime/failure_notice.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "framework/base/clock.h"
#include "comm/core/comm.h"
#include "framework/base/log.h"

enum {
    TAG = 1,
    MOST = 32,  /* ranks that one tells: powers of 2 */
    LOOKS = 100 /* at what is waited for, after a message */
};
#define GRACE_S 1.0 /* after a message: ranks that fail alike do so one after the other */

typedef struct said {
    int status, rank;
    char text[600];
} said;

struct ct_failure_notice {
    MPI_Comm comm;
    int rank, size, n_told; /* n_told: how many others each tells, and how many tell it */
    said coming, first, telling;
    MPI_Request listening, sending[MOST];
    /* since ranks agreed last: */
    int n_heard; /* messages that came */
    double since_s;
    int looks; /* since the first */
    bool has_told, gave_up;
};

static ct_status listen(ct_failure_notice *n)
{
    CT_TRY_MPI(MPI_Irecv(&n->coming, (int)sizeof(n->coming), MPI_BYTE, MPI_ANY_SOURCE, TAG, n->comm,
                         &n->listening));
    return CT_OK;
}

ct_status ct_failure_notice_open(MPI_Comm comm, ct_failure_notice **notice_p)
{
    ct_failure_notice *n = calloc(1, sizeof(*n));
    ct_status status;

    if (n == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for what ranks tell each other");
    n->comm = comm;
    MPI_Comm_rank(comm, &n->rank);
    MPI_Comm_size(comm, &n->size);
    while (((int64_t)1 << n->n_told) < n->size) n->n_told++;
    for (int k = 0; k < MOST; k++) n->sending[k] = MPI_REQUEST_NULL;
    n->listening = MPI_REQUEST_NULL;
    status = listen(n);
    if (status != CT_OK) {
        free(n);
        return status;
    }
    *notice_p = n;
    return CT_OK;
}

void ct_failure_notice_close(ct_failure_notice *n)
{
    if (n == NULL) return;
    if (n->listening != MPI_REQUEST_NULL) {
        MPI_Cancel(&n->listening);
        MPI_Wait(&n->listening, MPI_STATUS_IGNORE);
    }
    MPI_Waitall(n->n_told, n->sending, MPI_STATUSES_IGNORE);
    free(n);
}

/* To those 1, 2, 4 … further on. Small: MPI takes it at once. */
static ct_status tell(ct_failure_notice *n, const said *s)
{
    n->has_told = true;
    n->telling = *s;
    for (int k = 0; k < n->n_told; k++) {
        int to = (int)((n->rank + ((int64_t)1 << k)) % n->size);

        CT_TRY_MPI(MPI_Isend(&n->telling, (int)sizeof(n->telling), MPI_BYTE, to, TAG, n->comm,
                             &n->sending[k]));
    }
    return CT_OK;
}

ct_status ct_failure_notice_poll(void *ctx)
{
    ct_failure_notice *n = ctx;
    int done = 0;

    if (n->n_heard == 0) {
        CT_TRY_MPI(MPI_Test(&n->listening, &done, MPI_STATUS_IGNORE));
        if (!done) return CT_OK;
        n->first = n->coming;
        n->n_heard = 1;
        n->since_s = ct_clock_s();
        CT_TRY(listen(n));
        if (!n->has_told) CT_TRY(tell(n, &n->first));
    }
    if ((++n->looks < LOOKS) || (ct_clock_s() - n->since_s < GRACE_S)) return CT_OK;
    n->gave_up = true;
    return CT_FAIL((ct_status)n->first.status, "rank %d says: %s", n->first.rank, n->first.text);
}

/* ---- the end of a call */

/* What is compared of all ranks: the least of each. */
typedef struct verdict {
    int speaker, failed, well; /* first ranks that have words of their own, that failed, that did
                                  not fail by themselves */
    int words, complement;     /* of those who speak: a hash, and its complement */
} verdict;

static int hash(const char *text)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return (int)(h >> 2);
}

static verdict own_verdict(const ct_failure_notice *n, ct_status mine, const said *s)
{
    bool by_itself = (mine != CT_OK) && !n->gave_up, speaks = by_itself && (s->text[0] != '\0');

    return (verdict){ .speaker = speaks ? n->rank : n->size,
                      .failed = (mine != CT_OK) ? n->rank : n->size,
                      .well = by_itself ? n->size : n->rank,
                      .words = speaks ? hash(s->text) : INT_MAX,
                      .complement = speaks ? ~hash(s->text) : INT_MAX };
}

/* All failed by themselves, and each told as many: what has not been heard is taken. */
static ct_status clear(ct_failure_notice *n)
{
    for (; n->n_heard < n->n_told; n->n_heard++) {
        CT_TRY_MPI(MPI_Wait(&n->listening, MPI_STATUS_IGNORE));
        CT_TRY(listen(n));
    }
    CT_TRY_MPI(MPI_Waitall(n->n_told, n->sending, MPI_STATUSES_IGNORE));
    n->n_heard = n->looks = 0;
    n->has_told = false;
    return CT_OK;
}

ct_status ct_failure_notice_agree(ct_failure_notice *n, ct_status mine, bool *torn_p)
{
    said s = { .status = (int)mine };
    verdict all, own;
    bool same;

    *torn_p = false;
    if (n == NULL) return mine;
    s.rank = n->rank;
    if (mine != CT_OK) ct_log_last_error(s.text, sizeof(s.text));
    if ((mine != CT_OK) && !n->has_told) CT_TRY(tell(n, &s));
    all = own = own_verdict(n, mine, &s);
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &all, (int)(sizeof(all) / sizeof(int)), MPI_INT, MPI_MIN,
                             n->comm));
    if (all.failed == n->size) return CT_OK;
    same = (all.speaker == n->size) || (all.words == ~all.complement);
    *torn_p = (all.well < n->size) || !same;
    if (!*torn_p) CT_TRY(clear(n));
    int first = (all.speaker < n->size) ? all.speaker : all.failed;
    CT_TRY_MPI(MPI_Bcast(&s, (int)sizeof(s), MPI_BYTE, first, n->comm));
    if ((own.speaker == n->rank) || n->gave_up || (s.text[0] == '\0')) return (ct_status)s.status;
    return CT_FAIL((ct_status)s.status, "rank %d says: %s", s.rank, s.text);
}
