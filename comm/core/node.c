#include "comm/core/node.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "framework/base/memory.h"

enum {
    SLOTS_PER_PAGE = 256,
    PAGE_BYTES = SLOTS_PER_PAGE * (int)sizeof(ct_signals),
    RESERVE = 4 << 20 /* bytes left free: other programs use shared memory too */
};

typedef struct window {
    MPI_Win win;
    char **block;  /* [node_size]; NULL: this entry is free */
    size_t *bytes; /* [node_size]                          */
    char *end;     /* of what was asked for, of this rank's block */
    size_t rest;   /* bytes behind it: the MPI rounds up   */
} window;

struct ct_node {
    ct_comm *comm; /* borrowed */
    int64_t limit;
    int64_t used; /* bytes of all windows of this host */
    int n_window;
    window *window;
    int n_page;
    int *page;   /* window that holds signals of slots [i * SLOTS_PER_PAGE, ...) */
    char *taken; /* [n_page * SLOTS_PER_PAGE]                                    */
    ct_sleeper sleeper;
    int bell_slot; /* -1: none */
    ct_arena_ops arena;
};

static ct_status arena_acquire(void *ctx, size_t bytes, const char *what, void **block_p)
{
    ct_node *node = ctx;
    ct_status status = ct_node_acquire(node, bytes, what, block_p);

    if (status != CT_UNSUPPORTED) return status;
    return ct_arena_plain()->acquire(NULL, bytes, what, block_p);
}

static void arena_release(void *ctx, void *block)
{
    ct_node *node = ctx;
    int index = 0;
    int64_t offset = 0;

    if (block == NULL) return;
    if (ct_node_find(node, block, 0, &index, &offset))
        ct_node_release(node, block);
    else
        ct_arena_plain()->release(NULL, block);
}

const ct_arena_ops *ct_comm_arena(ct_comm *c)
{
    return (c->node_memory != NULL) ? &c->node_memory->arena : ct_arena_plain();
}

ct_status ct_node_create(ct_comm *c, ct_node **node_p)
{
    ct_node *node = calloc(1, sizeof(*node));

    if (node == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a node");
    node->comm = c;
    node->limit = -1;
    node->bell_slot = -1;
    node->arena = (ct_arena_ops){ CT_ARENA_SHARED, node, arena_acquire, arena_release };
    *node_p = node;
    return CT_OK;
}

static void free_window(window *w)
{
    if (w->block == NULL) return;
    ct_unguard(w->end, w->rest);
    (void)MPI_Win_unlock_all(w->win);
    (void)MPI_Win_free(&w->win);
    free(w->block);
    free(w->bytes);
    *w = (window){ .block = NULL };
}

void ct_node_destroy(ct_node *node)
{
    if (node == NULL) return;
    node->sleeper.bell = NULL; /* it goes with its window */
    for (int i = 0; i < node->n_window; ++i) free_window(&node->window[i]);
    free(node->window);
    free(node->page);
    free(node->taken);
    free(node);
}

void ct_node_set_limit(ct_node *node, int64_t bytes)
{
    node->limit = bytes;
}

/* Bytes that the shared-memory file system still has, less a reserve; 0 where it has none. */
static int64_t free_space(void)
{
    struct statvfs fs;
    int64_t bytes = 0;

    if (statvfs("/dev/shm", &fs) != 0) return 0;
    bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize - RESERVE;
    return (bytes > 0) ? bytes : 0;
}

/* All ranks say whether a window of `bytes` fits on each one's host, and agree. */
static ct_status agree_space(ct_node *node, size_t bytes, bool *fits_p)
{
    ct_comm *c = node->comm;
    int64_t wanted = (int64_t)bytes, space = free_space();
    int fits = 0;

    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_INT64_T, MPI_SUM, c->host));
    /* other ranks of the job there may make windows of other groups at the same time */
    space = space * c->host_size / c->host_all;
    if ((node->limit >= 0) && (space > node->limit - node->used)) space = node->limit - node->used;
    fits = c->node_shares && (wanted <= space);
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_LAND, c->mpi));
    if (fits) node->used += wanted;
    *fits_p = (fits != 0);
    return CT_OK;
}

static ct_status allocate(ct_node *node, size_t bytes, window *w)
{
    ct_comm *c = node->comm;
    MPI_Info info = MPI_INFO_NULL;
    void *base = NULL;
    int rc = MPI_SUCCESS;

    /* each rank's block on pages of its own: near its cores, and no cache line is shared */
    CT_TRY_MPI(MPI_Info_create(&info));
    rc = MPI_Info_set(info, "alloc_shared_noncontig", "true");
    if (rc == MPI_SUCCESS)
        rc =
            MPI_Win_allocate_shared((MPI_Aint)(bytes + CT_ALIGN), 1, info, c->node, &base, &w->win);
    (void)MPI_Info_free(&info);
    CT_TRY_MPI(rc);
    w->block = calloc((size_t)c->node_size, sizeof(*w->block));
    w->bytes = calloc((size_t)c->node_size, sizeof(*w->bytes));
    if ((w->block == NULL) || (w->bytes == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a window of %d ranks", c->node_size);
    CT_TRY_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, w->win));
    for (int r = 0; r < c->node_size; ++r) {
        MPI_Aint size = 0;
        int unit = 0;
        char *block = NULL;

        CT_TRY_MPI(MPI_Win_shared_query(w->win, r, &size, &unit, &block));
        /* all ranks map the window at the same place in a page, so all round alike */
        w->block[r] = (char *)(((uintptr_t)block + CT_ALIGN - 1) / CT_ALIGN * CT_ALIGN);
        w->bytes[r] = (size_t)size - CT_ALIGN;
        if (r != c->node_rank) continue;
        w->end = w->block[r] + bytes;
        w->rest = (size_t)(block + size - w->end);
    }
    memset(w->block[c->node_rank], 0, bytes);
    ct_guard(w->end, w->rest);
    CT_TRY_MPI(MPI_Barrier(c->node)); /* nobody signals in memory that is still being zeroed */
    return CT_OK;
}

ct_status ct_node_acquire(ct_node *node, size_t bytes, const char *what, void **block_p)
{
    bool fits = false;
    int at = 0;

    if (ct_topo_max_node_size(node->comm->topo) == 1)
        return CT_UNSUPPORTED; /* nobody to share with */
    CT_TRY(agree_space(node, bytes + CT_ALIGN, &fits));
    if (!fits) {
        if (node->comm->node_shares && (node->limit < 0))
            CT_WARN("no room in /dev/shm for %zu bytes of %s: ranks of a node exchange messages "
                    "instead of sharing memory",
                    bytes, what);
        return CT_UNSUPPORTED;
    }
    while ((at < node->n_window) && (node->window[at].block != NULL)) at += 1;
    if (at == node->n_window) {
        window *more = realloc(node->window, sizeof(*more) * (size_t)(at + 1));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a list of windows");
        node->window = more;
        node->window[at] = (window){ .block = NULL };
        node->n_window += 1;
    }
    CT_TRY(allocate(node, bytes, &node->window[at]));
    *block_p = node->window[at].block[node->comm->node_rank];
    return CT_OK;
}

ct_status ct_comm_share_block(ct_comm *c, size_t bytes, const char *what, void **first_p,
                              void **own_p)
{
    int index = 0;
    int64_t offset = 0;

    CT_TRY(ct_node_acquire(c->node_memory, bytes, what, own_p));
    if (!ct_node_find(c->node_memory, *own_p, 0, &index, &offset))
        return CT_FAIL(CT_ERR_COMM, "a window was lost");
    *first_p = ct_node_block(c->node_memory, index, 0);
    return CT_OK;
}

void ct_comm_release_block(ct_comm *c, void *own)
{
    ct_node_release(c->node_memory, own);
}

bool ct_node_find(const ct_node *node, const void *p, size_t bytes, int *window_p,
                  int64_t *offset_p)
{
    int me = node->comm->node_rank;

    for (int i = 0; i < node->n_window; ++i) {
        const window *w = &node->window[i];

        if (w->block == NULL) continue;
        if (((const char *)p < w->block[me]) ||
            ((const char *)p + bytes > w->block[me] + w->bytes[me]))
            continue;
        *window_p = i;
        *offset_p = (const char *)p - w->block[me];
        return true;
    }
    return false;
}

char *ct_node_block(const ct_node *node, int index, int node_rank)
{
    return node->window[index].block[node_rank];
}

ct_status ct_node_find_all(const ct_node *node, const void *p, size_t bytes, char **home,
                           bool *all_p)
{
    const ct_comm *c = node->comm;
    int64_t at[2] = { -1, 0 }, *all = malloc(sizeof(at) * (size_t)c->node_size);
    int index = -1, found = 1, rc = MPI_SUCCESS;

    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d offsets", c->node_size);
    if (ct_node_find(node, p, bytes, &index, &at[1])) at[0] = index;
    rc = MPI_Allgather(at, 2, MPI_INT64_T, all, 2, MPI_INT64_T, c->node);
    for (int i = 0; i < c->node_size; ++i)
        found = found && (all[2 * i] >= 0) && (all[2 * i] == at[0]);
    if (rc == MPI_SUCCESS) rc = MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_INT, MPI_LAND, c->mpi);
    for (int i = 0; found && (i < c->node_size); ++i)
        home[i] = ct_node_block(node, index, i) + all[2 * i + 1];
    free(all);
    CT_TRY_MPI(rc);
    *all_p = (found != 0);
    return CT_OK;
}

void ct_node_release(ct_node *node, void *block)
{
    int index = 0;
    int64_t offset = 0, bytes = 0;

    if (!ct_node_find(node, block, 0, &index, &offset)) return;
    bytes = (int64_t)(node->window[index].bytes[node->comm->node_rank] + CT_ALIGN);
    if (MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_INT64_T, MPI_SUM, node->comm->host) ==
        MPI_SUCCESS)
        node->used -= bytes;
    free_window(&node->window[index]);
}

static ct_status add_page(ct_node *node)
{
    void *block = NULL;
    int64_t offset = 0;
    int *page = realloc(node->page, sizeof(*page) * (size_t)(node->n_page + 1));
    char *taken = NULL;

    if (page == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for signals");
    node->page = page;
    taken = realloc(node->taken, (size_t)(node->n_page + 1) * SLOTS_PER_PAGE);
    if (taken == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for signals");
    node->taken = taken;
    memset(taken + (size_t)node->n_page * SLOTS_PER_PAGE, 0, SLOTS_PER_PAGE);
    CT_TRY(ct_node_acquire(node, PAGE_BYTES, "signals", &block));
    if (!ct_node_find(node, block, PAGE_BYTES, &node->page[node->n_page], &offset))
        return CT_FAIL(CT_ERR_COMM, "a window was lost");
    node->n_page += 1;
    return CT_OK;
}

ct_status ct_node_take_slot(ct_node *node, int *slot_p)
{
    int at = 0;

    while ((at < node->n_page * SLOTS_PER_PAGE) && node->taken[at]) at += 1;
    if (at == node->n_page * SLOTS_PER_PAGE) CT_TRY(add_page(node));
    node->taken[at] = 1;
    *slot_p = at;
    return CT_OK;
}

ct_signals *ct_node_signals(const ct_node *node, int slot, int node_rank)
{
    return (ct_signals *)(void *)ct_node_block(node, node->page[slot / SLOTS_PER_PAGE], node_rank) +
           slot % SLOTS_PER_PAGE;
}

void ct_node_give_slot(ct_node *node, int slot)
{
    ct_signals *mine = ct_node_signals(node, slot, node->comm->node_rank);

    (void)MPI_Barrier(node->comm->node); /* until here a slow neighbour may still be looking */
    atomic_store(&mine->in, 0);
    atomic_store(&mine->done, 0);
    (void)MPI_Barrier(node->comm->node); /* the next user finds zeros everywhere */
    node->taken[slot] = 0;
}

ct_sleeper *ct_node_sleeper(ct_node *node)
{
    return &node->sleeper;
}

ct_status ct_node_prepare_futex(ct_node *node)
{
    ct_status status = CT_OK;

    if (node->bell_slot >= 0) return CT_OK;
    status = ct_node_take_slot(node, &node->bell_slot);
    if (status == CT_OK) /* the line of a pair of counters, for its two words */
        node->sleeper.bell = (ct_futex *)(void *)ct_node_signals(node, node->bell_slot, 0);
    else
        node->bell_slot = -1;
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

/* ---- futex */

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_NS = 500000 };

static void sleep_unless(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec most = { 0, LONGEST_NS };

    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &most, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int n)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}
#else
static void sleep_unless(_Atomic uint32_t *word, uint32_t value)
{
    if (atomic_load(word) == value) (void)sched_yield();
}

static void wake(_Atomic uint32_t *word, int n)
{
    (void)word;
    (void)n;
}
#endif

void ct_futex_count(ct_sleeper *s, int change)
{
    (void)atomic_fetch_add_explicit(&s->waits, change, memory_order_relaxed);
    if (change < 0) ct_futex_leave(s);
}

void ct_futex_leave(ct_sleeper *s)
{
    if (!atomic_load_explicit(&s->announced, memory_order_relaxed)) return;
    if (atomic_exchange(&s->announced, false)) (void)atomic_fetch_sub(&s->bell->sleepers, 1);
}

bool ct_futex_wait(ct_sleeper *s)
{
    if ((s->bell == NULL) || (atomic_load_explicit(&s->waits, memory_order_relaxed) == 0))
        return false;
    if (!atomic_exchange(&s->announced, true)) {
        atomic_store(&s->seen, atomic_load(&s->bell->rings));
        (void)atomic_fetch_add(&s->bell->sleepers, 1);
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    sleep_unless(&s->bell->rings, atomic_load(&s->seen));
    ct_futex_leave(s);
    return true;
}

void ct_futex_wake_now(ct_futex *bell, int n)
{
    (void)atomic_fetch_add(&bell->rings, 1);
    wake(&bell->rings, n);
}
