/* Reads and writes by io_uring, Linux's rings of requests and answers in memory shared with the
 * kernel: io_uring(7), io_uring_setup(2), io_uring_enter(2). */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framework/base/async_io_form.h"

enum { ENTRIES = 64, N_OP = 256 };

typedef _Atomic unsigned index_t; /* of a ring; counts on without end */

typedef struct uring {
    int fd;
    unsigned entries, mask; /* of requests: each is handed over at once, so one would do */
    struct io_uring_sqe *request;
    index_t *head, *tail;
    unsigned *slot;
    unsigned n_answer, answer_mask;
    struct io_uring_cqe *answer;
    index_t *answer_head, *answer_tail;
    unsigned under_way;
    void *ring;
    size_t ring_bytes;
} uring;

/* ---- handing over */

static int enter(const uring *u, unsigned submit, unsigned wait)
{
    return (int)syscall(SYS_io_uring_enter, u->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0,
                        NULL, 0);
}

/* false: the kernel does not take what is left of it now. */
static bool hand_over(uring *u, ct_io_request *r)
{
    unsigned tail = atomic_load_explicit(u->tail, memory_order_relaxed), i = tail & u->mask;
    size_t left = r->bytes - r->moved;

    u->request[i] = (struct io_uring_sqe){ .opcode = r->write ? IORING_OP_WRITE : IORING_OP_READ,
                                           .fd = r->fd,
                                           .addr = (uintptr_t)r->data + r->moved,
                                           .len = (left < (1u << 30)) ? (unsigned)left : (1u << 30),
                                           .off = (uint64_t)r->at + r->moved,
                                           .user_data = (uintptr_t)r };
    u->slot[i] = i;
    atomic_store_explicit(u->tail, tail + 1, memory_order_release);
    (void)enter(u, 1, 0);
    if (atomic_load_explicit(u->head, memory_order_acquire) == tail + 1) {
        u->under_way++;
        return true;
    }
    atomic_store_explicit(u->tail, tail, memory_order_release);
    return false;
}

static void finish_here(ct_io_request *r)
{
    ct_io_move(r);
    r->done = true;
}

static void begin(uring *u, ct_io_request *r)
{
    if (!hand_over(u, r)) finish_here(r);
}

/* ---- answers */

static void hear(uring *u, const struct io_uring_cqe *c)
{
    ct_io_request *r = (ct_io_request *)(uintptr_t)c->user_data;

    u->under_way--;
    if ((c->res == -EINTR) || (c->res == -EAGAIN)) {
        finish_here(r);
        return;
    }
    if (c->res <= 0) {
        r->error = (c->res < 0) ? -c->res : r->write ? ENOSPC : -1;
        r->done = true;
        return;
    }
    r->moved += (size_t)c->res;
    if (r->moved < r->bytes)
        begin(u, r);
    else
        r->done = true;
}

/* false: there is none. */
static bool take_answer(uring *u)
{
    unsigned head = atomic_load_explicit(u->answer_head, memory_order_relaxed);
    struct io_uring_cqe c;

    if (head == atomic_load_explicit(u->answer_tail, memory_order_acquire)) return false;
    c = u->answer[head & u->answer_mask];
    atomic_store_explicit(u->answer_head, head + 1, memory_order_release);
    hear(u, &c);
    return true;
}

/* 0, or what went wrong. */
static int wait_answer(uring *u)
{
    while (!take_answer(u))
        if ((enter(u, 0, 1) < 0) && (errno != EINTR) && (errno != EAGAIN)) return errno;
    return 0;
}

static void uring_submit(void *own, ct_io_request *r)
{
    uring *u = own;

    while ((u->under_way >= u->n_answer) && (wait_answer(u) == 0)) {
    }
    begin(u, r);
}

static void uring_wait(void *own, ct_io_request *r)
{
    while (!r->done) {
        int error = wait_answer(own);

        if (error == 0) continue;
        r->error = error;
        r->done = true;
    }
}

static bool uring_done(void *own, ct_io_request *r)
{
    while (take_answer(own)) {
    }
    return r->done;
}

/* ---- rings */

static void uring_close(void *own)
{
    uring *u = own;

    if (u->request != NULL) (void)munmap(u->request, u->entries * sizeof(*u->request));
    if (u->ring != NULL) (void)munmap(u->ring, u->ring_bytes);
    if (u->fd >= 0) (void)close(u->fd);
    free(u);
}

/* Whether this kernel reads and writes by it: 5.6 and later do. */
static bool can_move(int fd)
{
    size_t bytes = sizeof(struct io_uring_probe) + N_OP * sizeof(struct io_uring_probe_op);
    struct io_uring_probe *p = calloc(1, bytes);
    bool can = (p != NULL) &&
               (syscall(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, p, N_OP) == 0) &&
               (p->last_op >= IORING_OP_WRITE) &&
               ((p->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) != 0) &&
               ((p->ops[IORING_OP_WRITE].flags & IO_URING_OP_SUPPORTED) != 0);

    free(p);
    return can;
}

static void *map(const uring *u, size_t bytes, off_t what)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, what);

    return (at == MAP_FAILED) ? NULL : at;
}

static bool map_rings(uring *u, const struct io_uring_params *p)
{
    size_t requests = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t answers = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char *ring;

    u->entries = p->sq_entries;
    u->n_answer = p->cq_entries;
    u->ring_bytes = (requests > answers) ? requests : answers;
    u->ring = map(u, u->ring_bytes, IORING_OFF_SQ_RING);
    if (u->ring == NULL) return false;
    u->request = map(u, u->entries * sizeof(*u->request), (off_t)IORING_OFF_SQES);
    if (u->request == NULL) return false;
    ring = u->ring;
    u->head = (index_t *)(void *)(ring + p->sq_off.head);
    u->tail = (index_t *)(void *)(ring + p->sq_off.tail);
    u->slot = (unsigned *)(void *)(ring + p->sq_off.array);
    u->mask = *(unsigned *)(void *)(ring + p->sq_off.ring_mask);
    u->answer_head = (index_t *)(void *)(ring + p->cq_off.head);
    u->answer_tail = (index_t *)(void *)(ring + p->cq_off.tail);
    u->answer = (struct io_uring_cqe *)(void *)(ring + p->cq_off.cqes);
    u->answer_mask = *(unsigned *)(void *)(ring + p->cq_off.ring_mask);
    return true;
}

static ct_status uring_open(void **own_p, int *error_p)
{
    const unsigned needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
    struct io_uring_params p = { .flags = 0 };
    uring *u = calloc(1, sizeof(*u));

    if (u == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read and write files");
    u->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
    *error_p = (u->fd < 0) ? errno : ENOSYS;
    if ((u->fd < 0) || ((p.features & needed) != needed) || !can_move(u->fd) || !map_rings(u, &p)) {
        uring_close(u);
        return CT_UNSUPPORTED;
    }
    *own_p = u;
    return CT_OK;
}

const ct_io_form ct_io_uring = { .name = "io_uring",
                                 .open = uring_open,
                                 .close = uring_close,
                                 .submit = uring_submit,
                                 .wait = uring_wait,
                                 .done = uring_done };
