/* Weight gradients on blocked layouts: the driver of their tiles.
 *
 * Slices are fixed by the shape; each has its own dW, and they are added up in their order. Where
 * there is one, a task's part goes to its owner while it still is in a cache. */
#include "framework/base/memory.h"
#include "framework/base/task_loop.h"

#include "layers/engine/conv/blocked.h"

/* Weight gradients on blocked layouts; private to conv/.
 *
 * A task is some output blocks x some input blocks of a group, for a slice of the places of all
 * images; its part of dW stays in a second-level cache. It goes through its places in units, some
 * rows of an image or several small images, which stay in a first-level cache while all taps of a
 * pair of output blocks and an input block take them.
 */

typedef struct ct_grad_plan {
    ct_blk_set set;
    int64_t in, out, in_block, out_block; /* channels of a group, and its blocks               */
    int64_t in_step, out_step;            /* blocks of a task                                  */
    int64_t n_in, n_out;                  /* tasks along them                                  */
    int64_t images, rows, cols;           /* of a unit                                         */
    int64_t n_image, n_row, n_col;        /* units along them                                  */
    int64_t n_task, n_slice;
    int64_t weights; /* floats of a pair of an input and an output block  */
    int64_t part;    /* floats of a task's dW                             */
    int64_t own;     /* words of a unit that a thread copies, rounded     */
} ct_grad_plan;

/** A place where things are: the unit, and the blocks. */
typedef struct ct_grad_place {
    int64_t n, images, i, i_end, j, j_end, g, block, k;
    int64_t first_k, first_block; /* of the task                    */
    const float *x, *dy;          /* copies of them, where there are */
    int64_t x_top, x_rows;        /* rows of the copy of x          */
} ct_grad_place;

/** Words that a thread needs for copies of a unit, where operands are rounded; else 0. */
static int64_t ct_grad_copied(const ct_conv_desc *d, const ct_grad_plan *p);
/** What blocks [first_k, last_k) of x and [first_block, last_block) of dy hold of a unit, to `own`.
 */
static void ct_grad_copy_unit(const ct_conv_desc *d, const ct_grad_plan *p, const ct_conv_args *a,
                              ct_grad_place *l, int64_t last_k, int64_t last_block, float *own);
/** All taps of one pair of output blocks and one input block over a unit, from its copies. */
static void ct_grad_add_copies(const ct_conv_desc *d, const ct_grad_plan *p, const ct_grad_place *l,
                               float *dw);

static const int64_t UNIT_FLOATS = 8448; /* of x and dY: part of a first-level cache        */
static const int64_t ALONE_FLOATS =
    25344; /* the same of one tap, which shares nothing: of a second */
static const int64_t BLOCK_BYTES = 96 << 10; /* of a task's dW: part of a second-level cache   */
static const int64_t TASKS = 32;             /* slices are cut until there are so many …       */
static const int64_t SLICE_BYTES = 32ll << 20; /* … unless they would take more memory than this */
static const int64_t SLICE_PLACES = 2048;      /* at least: adding up costs little beside */

typedef ct_grad_plan plan;
typedef ct_grad_place place;

static int64_t even(int64_t whole, int64_t most)
{
    return blk_count(whole, blk_count(whole, blk_larger(most, 1)));
}

/* Without neighbours an image is one row. */
static ct_conv_desc flat(const ct_conv_desc *d)
{
    ct_conv_desc f = *d;

    if ((d->kh > 1) || (d->kw > 1) || (d->sh > 1) || (d->sw > 1) || (d->ph > 0) || (d->pw > 0))
        return f;
    f.w = f.ow = d->h * d->w;
    f.h = f.oh = 1;
    return f;
}

static void choose_unit(const ct_conv_desc *d, plan *p)
{
    /* x's places that taps share; those of one tap pass by */
    int64_t shared =
        (d->kh * d->kw > 1) ? blk_smaller(d->sh, d->kh) * blk_smaller(d->sw, d->kw) : 0;
    int64_t pair = p->set.pair, room = UNIT_FLOATS, places;

    if ((d->kh * d->kw == 1) && (p->set.narrow == NULL)) room = ALONE_FLOATS;
    places = room * pair / ((CT_BLK_MAX_VECS + pair * shared) * p->set.b);
    p->cols = even(d->ow, blk_smaller(places, d->ow));
    p->rows = even(d->oh, blk_smaller(places / p->cols, d->oh));
    p->images = (p->cols * p->rows < d->ow * d->oh) ? 1 : places / (p->rows * p->cols);
    p->images = blk_larger(blk_smaller(p->images, d->n), 1);
    p->n_image = blk_count(d->n, p->images);
    p->n_row = blk_count(d->oh, p->rows);
    p->n_col = blk_count(d->ow, p->cols);
}

static void cut_tasks(const ct_conv_desc *d, plan *p, int64_t in_step, int64_t out_step)
{
    p->in_step = in_step;
    p->out_step = out_step;
    p->n_in = blk_count(p->in_block, in_step);
    p->n_out = blk_count(p->out_block, out_step);
    p->part = in_step * out_step * p->weights;
    p->n_task = d->group * p->n_in * p->n_out;
}

/* What the thread that has most tasks does, in products of two blocks: reading a block of x or dY
 * takes about as long as half of one. */
static int64_t longest_share(const ct_conv_desc *d, const plan *p)
{
    int64_t task = 2 * p->in_step * p->out_step + p->in_step + p->out_step;

    return blk_count(p->n_slice * p->n_task, d->n_thread) * task;
}

/* Smaller tasks where there are too few for the team. Which blocks a task has changes no sum, so
 * the bits are those of any number of threads; slices would. */
static void share_out(const ct_conv_desc *d, plan *p)
{
    plan best = *p;
    int64_t least = longest_share(d, p) * 9 / 10; /* not for nothing */

    for (int64_t in = p->in_step; in > 0; in--) {
        for (int64_t out = p->out_step; out > 0; out -= CT_BLK_MAX_VECS) {
            plan t = *p;

            cut_tasks(d, &t, even(p->in_block, in),
                      even(blk_count(p->out_block, CT_BLK_MAX_VECS), out / CT_BLK_MAX_VECS) *
                          CT_BLK_MAX_VECS);
            if (longest_share(d, &t) >= least) continue;
            least = longest_share(d, &t);
            best = t;
        }
    }
    *p = best;
}

static plan make_plan(const ct_conv_desc *d)
{
    plan p = { .set = ct_blk_pick(d->bf16), .in = d->c / d->group, .out = d->m / d->group };
    int64_t b = p.set.b, pairs, units, slice;

    p.in_block = blk_count(p.in, b);
    p.out_block = blk_count(p.out, b);
    p.weights = d->kh * d->kw * b * b;
    pairs = BLOCK_BYTES / (p.weights * CT_BLK_MAX_VECS * (int64_t)sizeof(float));
    p.in_step = 1;
    while (p.in_step * p.in_step * CT_BLK_MAX_VECS < pairs) p.in_step++; /* x's part about dY's */
    p.out_step = blk_larger(pairs / p.in_step, 1) * CT_BLK_MAX_VECS;
    p.in_step = even(p.in_block, p.in_step);
    p.out_step = even(blk_count(p.out_block, CT_BLK_MAX_VECS), p.out_step / CT_BLK_MAX_VECS) *
                 CT_BLK_MAX_VECS;
    cut_tasks(d, &p, p.in_step, p.out_step);
    choose_unit(d, &p);
    slice = p.n_task * p.part;
    units = p.n_image * p.n_row * p.n_col;
    p.n_slice = blk_smaller(blk_count(TASKS, p.n_task), units);
    p.n_slice = blk_smaller(p.n_slice, d->n * out_size(d) / SLICE_PLACES);
    p.n_slice = blk_smaller(p.n_slice, SLICE_BYTES / (slice * (int64_t)sizeof(float)));
    p.n_slice = blk_larger(p.n_slice, 1);
    share_out(d, &p);
    p.own = ct_grad_copied(d, &p);
    return p;
}

/* Blocks [first_k, last_k) x [first, last) of group g. */
typedef struct task {
    int64_t g, first_k, last_k, first, last;
} task;

static task find_task(const plan *p, int64_t t)
{
    task b = { .g = t / p->n_in / p->n_out,
               .first_k = t % p->n_in * p->in_step,
               .first = t / p->n_in % p->n_out * p->out_step };

    b.last_k = blk_smaller(b.first_k + p->in_step, p->in_block);
    b.last = blk_smaller(b.first + p->out_step, p->out_block);
    return b;
}

/* Where the gradients of a pair of output blocks, from `block` on, and input block k begin in the
 * task's part. */
static float *gradient(const plan *p, const task *b, float *part, int64_t block, int64_t k)
{
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS);

    return part +
           ((block - b->first) * (b->last_k - b->first_k) + (k - b->first_k) * vecs) * p->weights;
}

/* All taps of one pair of output blocks and one input block over a unit. */
static void add_unit(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, const place *l,
                     float *dw)
{
    int64_t b = p->set.b, vecs = blk_smaller(p->out_block - l->block, CT_BLK_MAX_VECS);
    int64_t real = blk_smaller(p->in - l->k * b, b);
    int64_t n_part = blk_count(real, p->set.max_tile[vecs - 1]);
    int64_t plane = in_size(d) * b, y_plane = out_size(d) * b;
    const float *x = a->x + ((l->n * d->group + l->g) * p->in_block + l->k) * plane;
    const float *dy = a->dy + ((l->n * d->group + l->g) * p->out_block + l->block) * y_plane;
    ct_blk_grad t = { .images = l->images,
                      .x_image = d->group * p->in_block * plane,
                      .x_row = d->sh * d->w * b,
                      .x_step = d->sw * b,
                      .dy_image = d->group * p->out_block * y_plane,
                      .dy_row = d->ow * b,
                      .dy_block = y_plane };

    for (int64_t tap = 0; tap < d->kh * d->kw; tap++, dw += b * vecs * b) {
        int64_t row = tap / d->kw * d->dh - d->ph, col = tap % d->kw * d->dw - d->pw;
        int64_t i, i_end, j, j_end;

        valid_range(row, d->sh, d->h, d->oh, &i, &i_end);
        valid_range(col, d->sw, d->w, d->ow, &j, &j_end);
        i = blk_larger(i, l->i), i_end = blk_smaller(i_end, l->i_end);
        j = blk_larger(j, l->j), j_end = blk_smaller(j_end, l->j_end);
        if ((i >= i_end) || (j >= j_end)) continue;
        t.rows = i_end - i, t.cols = j_end - j;
        t.dy = dy + (i * d->ow + j) * b;
        for (int64_t v = 0; v < n_part; v++) {
            int64_t c = real * v / n_part, end = real * (v + 1) / n_part;

            t.x = x + ((i * d->sh + row) * d->w + j * d->sw + col) * b + c;
            t.dw = dw + c * vecs * b;
            p->set.grads[vecs - 1][end - c - 1](&t);
        }
    }
}

static int64_t parts_kept(const ct_conv_desc *d, const plan *p)
{
    return (p->n_slice > 1) ? p->n_slice * p->n_task : d->n_thread;
}

/* Of slice s and task t: their own where there are several slices, else one a thread. */
static float *part_of(const plan *p, const ct_conv_args *a, int64_t s, int64_t t)
{
    int64_t i = (p->n_slice > 1) ? s * p->n_task + t : omp_get_thread_num();

    return (float *)a->work + i * p->part;
}

/* A thread's copy of a unit: behind the parts. */
static float *own_copy(const ct_conv_desc *d, const plan *p, const ct_conv_args *a)
{
    return (float *)a->work + parts_kept(d, p) * p->part + omp_get_thread_num() * p->own;
}

static void run_unit(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t unit,
                     const task *b, float *part)
{
    int64_t image = unit / p->n_col / p->n_row, row = unit / p->n_col % p->n_row;
    int64_t col = unit % p->n_col;
    place l = { .n = image * p->images,
                .i = row * p->rows,
                .i_end = blk_smaller((row + 1) * p->rows, d->oh),
                .j = col * p->cols,
                .j_end = blk_smaller((col + 1) * p->cols, d->ow),
                .g = b->g,
                .first_k = b->first_k,
                .first_block = b->first };

    l.images = blk_smaller(p->images, d->n - l.n);
    if (p->own > 0) ct_grad_copy_unit(d, p, a, &l, b->last_k, b->last, own_copy(d, p, a));
    for (l.block = b->first; l.block < b->last; l.block += CT_BLK_MAX_VECS) {
        for (l.k = b->first_k; l.k < b->last_k; l.k++) {
            float *dw = gradient(p, b, part, l.block, l.k);

            if (p->own > 0)
                ct_grad_add_copies(d, p, &l, dw);
            else
                add_unit(d, p, a, &l, dw);
        }
    }
}

/* Rows of `out` channels, n columns (channel, tap), from rows of lanes in (tap, channel) order. */
static void unpack(const plan *p, int64_t taps, int64_t out, int64_t n, float beta,
                   const float *sum, int64_t lanes, float *dw)
{
    enum { COLUMNS = 16 };
    int64_t b = p->set.b, step = p->in * taps, t = 0, c = 0;
    float part[COLUMNS * CT_BLK_MAX], turned[CT_BLK_MAX * COLUMNS];

    for (int64_t j = 0; j < n; j += COLUMNS) {
        int64_t here = blk_smaller(n - j, COLUMNS);

        for (int64_t k = 0; k < here; k++) {
            memcpy(part + k * b, sum + (t * b + c) * lanes, (size_t)b * sizeof(float));
            if (++t == taps) t = 0, c++;
        }
        ct_blk_turn(here, out, part, b, turned, COLUMNS);
        for (int64_t m = 0; m < out; m++) {
            float *to = dw + m * step + j;

            for (int64_t k = 0; k < here; k++)
                to[k] = turned[m * COLUMNS + k] + ((beta != 0.0f) ? beta * to[k] : 0.0f);
        }
    }
}

/* One input block of a pair of output blocks of task t: slices added up, in Caffe's order. */
static void add_piece(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t t,
                      const task *of, int64_t block, int64_t k)
{
    int64_t vecs = blk_smaller(p->out_block - block, CT_BLK_MAX_VECS), b = p->set.b;
    int64_t lanes = vecs * b, taps = d->kh * d->kw;
    int64_t n_out = blk_smaller(p->out - block * b, lanes), n_in = blk_smaller(p->in - k * b, b);
    float *sum = gradient(p, of, part_of(p, a, 0, t), block, k);

    for (int64_t s = 1; s < p->n_slice; s++) {
        const float *other = gradient(p, of, part_of(p, a, s, t), block, k);

        for (int64_t i = 0; i < vecs * p->weights; i++) sum[i] += other[i];
    }
    for (int64_t m = 0; m < n_out; m += b) {
        float *dw = a->dweight + ((of->g * p->out + block * b + m) * p->in + k * b) * taps;

        unpack(p, taps, blk_smaller(n_out - m, b), n_in * taps, a->beta, sum + m, lanes, dw);
    }
}

static bool supports(const ct_conv_desc *d)
{
    return ct_blk_supports(d) || ct_blk_supports_first(d) || ct_blk_supports_depth(d);
}

static int64_t own_work(const ct_conv_desc *d, const plan *p)
{
    return parts_kept(d, p) * p->part + d->n_thread * p->own;
}

static size_t workspace(const ct_conv_desc *d)
{
    ct_conv_desc f;
    plan p;

    if (d->x_block == 0) return ct_blk_first_weight_workspace(d);
    if (ct_blk_supports_depth(d)) return ct_blk_depth_weight_workspace(d);
    f = ct_blk_is_sparse(d) ? ct_blk_dense(d) : *d;
    f = flat(&f);
    p = make_plan(&f);
    return (size_t)(own_work(&f, &p) + (ct_blk_is_sparse(d) ? ct_blk_dense_floats(d) : 0)) *
           sizeof(float);
}

/* Task t of slice s. */
static void run_task(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, ct_exec *ex,
                     int64_t s, int64_t t, ct_status *polled_p)
{
    int64_t n_unit = p->n_image * p->n_row * p->n_col, last = n_unit * (s + 1) / p->n_slice;
    task b = find_task(p, t);
    float *part = part_of(p, a, s, t);

    memset(part, 0, (size_t)p->part * sizeof(float));
    for (int64_t u = n_unit * s / p->n_slice; u < last; u++) {
        run_unit(d, p, a, u, &b, part);
        ct_engine_poll(ex, polled_p);
    }
    if (p->n_slice > 1) return;
    for (int64_t block = b.first; block < b.last; block += CT_BLK_MAX_VECS) {
        for (int64_t k = b.first_k; k < b.last_k; k++) add_piece(d, p, a, t, &b, block, k);
    }
}

/* Piece i of all, where there are several slices. */
static void join_slices(const ct_conv_desc *d, const plan *p, const ct_conv_args *a, int64_t i)
{
    int64_t n_pair = blk_count(p->out_step, CT_BLK_MAX_VECS), t = i / n_pair / p->in_step;
    task b = find_task(p, t);
    int64_t block = b.first + i / p->in_step % n_pair * CT_BLK_MAX_VECS;
    int64_t k = b.first_k + i % p->in_step;

    if ((block < b.last) && (k < b.last_k)) add_piece(d, p, a, t, &b, block, k);
}

static ct_status run_blocked(const ct_conv_desc *whole, ct_exec *ex, const ct_conv_args *a)
{
    ct_conv_desc f = flat(whole), *d = &f;
    plan p = make_plan(d);
    int64_t n_piece = p.n_task * p.in_step * blk_count(p.out_step, CT_BLK_MAX_VECS);
    ct_task_team team;
    ct_status polled = CT_OK;

    ct_task_team_init(&team, d->n_thread);
#pragma omp parallel num_threads(d->n_thread)
    {
        ct_task_loop loop = ct_task_loop_of(&team);

        for (int64_t t = ct_task_first(&loop, p.n_slice * p.n_task); t >= 0;
             t = ct_task_next(&loop))
            run_task(d, &p, a, ex, t / p.n_task, t % p.n_task, &polled);
#pragma omp barrier
        if (p.n_slice > 1) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n_piece; i++) join_slices(d, &p, a, i);
        }
    }
    return polled;
}

/* Work: that of the dense one, then what is used of x. */
static ct_status run_sparse(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_conv_desc dense = ct_blk_dense(d);
    ct_conv_desc f = flat(&dense);
    plan p = make_plan(&f);
    ct_conv_args used = *a;
    float *x = (float *)a->work + own_work(&f, &p);

    ct_blk_gather(d, a->x, x);
    used.x = x;
    return run_blocked(&dense, ex, &used);
}

static ct_status run(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    if (d->x_block == 0) return ct_blk_first_weight(d, ex, a);
    if (ct_blk_supports_depth(d)) return ct_blk_depth_weight(d, ex, a);
    if (ct_blk_is_sparse(d)) return run_sparse(d, ex, a);
    return run_blocked(d, ex, a);
}

const ct_conv_impl ct_conv_blocked_backward_weight = { .name = "blocked",
                                                       .supports = supports,
                                                       .workspace = workspace,
                                                       .run = run,
                                                       .can = CT_CONV_CAN_BF16 };

/* ---- Units of weight gradients whose operands are rounded on the way: copies in words. */

/* A unit's copy where operands are rounded: places j and j + 1 of dy are a word, the last one's
 * partner a zero; so x's words are of places that are a stride apart, at every place that a tap may
 * begin at. Without taps that share them only every other one is there. */
static int64_t pairs_of(const ct_grad_plan *p, int64_t cols)
{
    return blk_count(cols, p->set.pair);
}

static int64_t x_step(const ct_conv_desc *d, const ct_grad_plan *p)
{
    return (d->kw == 1) ? p->set.pair * d->sw : 1;
}

static int64_t x_places(const ct_conv_desc *d, const ct_grad_plan *p, int64_t cols)
{
    int64_t last = (pairs_of(p, cols) - 1) * p->set.pair * d->sw;

    return (d->kw == 1) ? pairs_of(p, cols) : last + (d->kw - 1) * d->dw + 1;
}

static int64_t x_rows(const ct_conv_desc *d, int64_t rows)
{
    return (rows - 1) * d->sh + (d->kh - 1) * d->dh + 1;
}

static int64_t ct_grad_copied(const ct_conv_desc *d, const ct_grad_plan *p)
{
    int64_t x = x_rows(d, p->rows) * x_places(d, p, p->cols);

    if (p->set.narrow == NULL) return 0;
    return p->images * p->set.b * (p->in_step * x + p->out_step * p->rows * pairs_of(p, p->cols));
}

static void ct_grad_add_copies(const ct_conv_desc *d, const ct_grad_plan *p, const ct_grad_place *l,
                               float *dw)
{
    int64_t b = p->set.b, vecs = blk_smaller(p->out_block - l->block, CT_BLK_MAX_VECS);
    int64_t real = blk_smaller(p->in - l->k * b, b);
    int64_t n_part = blk_count(real, p->set.max_tile[vecs - 1]);
    int64_t x_row = x_places(d, p, l->j_end - l->j) * b, rows = l->i_end - l->i;
    ct_blk_grad t = { .images = l->images,
                      .cols = pairs_of(p, l->j_end - l->j),
                      .x_image = l->x_rows * x_row,
                      .x_row = d->sh * x_row,
                      .x_step = ((d->kw == 1) ? 1 : p->set.pair * d->sw) * b };
    const float *x = l->x + (l->k - l->first_k) * l->images * t.x_image;

    t.dy_row = t.cols * b;
    t.dy_image = rows * t.dy_row;
    t.dy_block = l->images * t.dy_image;
    for (int64_t tap = 0; tap < d->kh * d->kw; tap++, dw += b * vecs * b) {
        int64_t row = tap / d->kw * d->dh - d->ph, col = tap % d->kw * d->dw, i, i_end;

        valid_range(row, d->sh, d->h, d->oh, &i, &i_end);
        i = blk_larger(i, l->i), i_end = blk_smaller(i_end, l->i_end);
        if (i >= i_end) continue;
        t.rows = i_end - i;
        t.dy = l->dy + (l->block - l->first_block) * t.dy_block + (i - l->i) * t.dy_row;
        for (int64_t v = 0; v < n_part; v++) {
            int64_t c = real * v / n_part, end = real * (v + 1) / n_part;

            t.x = x + (i * d->sh + row - l->x_top) * x_row + col * b + c;
            t.dw = dw + c * vecs * b;
            p->set.grads[vecs - 1][end - c - 1](&t);
        }
    }
}

/* One row of x from column `col` on, `places` words of each channel. */
static void copy_x_row(const ct_conv_desc *d, const ct_grad_plan *p, const float *x, int64_t col,
                       int64_t places, float *to)
{
    static const float zeros[CT_BLK_MAX];
    bool h = d->x_bf16;
    void (*across)(int64_t, int64_t, const float *, const float *, int64_t, float *, int64_t) =
        h ? p->set.narrow->across_bf16 : p->set.narrow->across;
    int64_t b = p->set.b, step = x_step(d, p), partner = (p->set.pair == 2) ? d->sw : 0, lo, hi;

    /* both are inside from lo to hi */
    valid_range(col, step, d->w - partner, places, &lo, &hi);
    for (int64_t t = 0; t < places; t++) {
        int64_t a = col + t * step, c = a + partner;
        bool has_a = (a >= 0) && (a < d->w), has_c = (c >= 0) && (c < d->w);

        if ((t >= lo) && (t < hi)) continue;
        across(1, b, has_a ? ct_num_at(x, h, a * b) : zeros, has_c ? ct_num_at(x, h, c * b) : NULL,
               0, to + t * b, 0);
    }
    if (lo >= hi) return;
    x = ct_num_at(x, h, (col + lo * step) * b);
    if (step == 1)
        across(1, (hi - lo) * b, x, ct_num_at(x, h, partner * b), 0, to + lo * b, 0);
    else
        across(hi - lo, b, x, ct_num_at(x, h, partner * b), step * b, to + lo * b, b);
}

/* One row of dy: pairs of its places, the last one alone where they are odd. */
static void copy_dy_row(const ct_grad_plan *p, bool h, const float *dy, int64_t cols, float *to)
{
    void (*across)(int64_t, int64_t, const float *, const float *, int64_t, float *, int64_t) =
        h ? p->set.narrow->across_bf16 : p->set.narrow->across;
    int64_t b = p->set.b, pair = p->set.pair, n = cols / pair;

    across(n, b, dy, ct_num_at(dy, h, b), pair * b, to, b);
    if (n * pair < cols) across(1, b, ct_num_at(dy, h, n * pair * b), NULL, 0, to + n * b, 0);
}

static void ct_grad_copy_unit(const ct_conv_desc *d, const ct_grad_plan *p, const ct_conv_args *a,
                              ct_grad_place *l, int64_t last_k, int64_t last_block, float *own)
{
    int64_t b = p->set.b, cols = l->j_end - l->j, places = x_places(d, p, cols);
    int64_t end = blk_smaller(l->i * d->sh - d->ph + x_rows(d, l->i_end - l->i), d->h);

    l->x_top = blk_smaller(blk_larger(l->i * d->sh - d->ph, 0), d->h);
    l->x_rows = blk_larger(end - l->x_top, 0);
    l->x = own;
    for (int64_t k = l->first_k; k < last_k; k++) {
        for (int64_t n = l->n; n < l->n + l->images; n++) {
            int64_t plane = ((n * d->group + l->g) * p->in_block + k) * in_size(d);

            for (int64_t r = l->x_top; r < l->x_top + l->x_rows; r++, own += places * b)
                copy_x_row(d, p, ct_num_at(a->x, d->x_bf16, (plane + r * d->w) * b),
                           l->j * d->sw - d->pw, places, own);
        }
    }
    l->dy = own;
    for (int64_t k = l->first_block; k < last_block; k++) {
        for (int64_t n = l->n; n < l->n + l->images; n++) {
            int64_t plane = ((n * d->group + l->g) * p->out_block + k) * out_size(d);

            for (int64_t i = l->i; i < l->i_end; i++, own += pairs_of(p, cols) * b)
                copy_dy_row(p, d->y_bf16,
                            ct_num_at(a->dy, d->y_bf16, (plane + i * d->ow + l->j) * b), cols, own);
        }
    }
}
