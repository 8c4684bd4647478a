#include "runtime/division/divided_net.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/hash.h"
#include "framework/base/file.h"
#include "framework/base/number.h"
#include "framework/base/text.h"
#include "framework/snapshot/parts.h"
#include "framework/snapshot/snapshot.h"

/* Of one opened net. */
typedef struct part {
    const ct_divided_net *of;
    ct_parallel *parallel; /* binds to one net */
    ct_job_division *division;
} part;

/* ---- what the file must be */

/* Sequences side by side are one row of tokens, so nothing goes by samples or by tokens; and each
 * rank has the whole output. */
static ct_status check(const part *p, const ct_sharded_net *s)
{
    const char *file = p->of->file;
    const ct_net *net = s->net;

    if (p->parallel->n_stage != 1)
        return CT_FAIL(CT_ERR_CONFIG, "%s: sequences side by side run in one stage, not in %d",
                       file, p->parallel->n_stage);
    for (int i = 0; i < net->n_layer; i++) {
        ct_sharding_kind kind = s->top[i].kind;

        if ((kind != CT_SHARDING_BATCH) && (kind != CT_SHARDING_SEQUENCE)) continue;
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: layer \"%s\" is dealt out by %s: sequences side by side are one row, "
                       "so each layer needs another split, such as REPLICATE",
                       file, net->layer[i]->name,
                       (kind == CT_SHARDING_BATCH) ? "samples" : "tokens");
    }
    if (s->top[net->n_layer - 1].kind != CT_SHARDING_WHOLE)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the output, of layer \"%s\", is not whole on each rank: the last layer "
                       "needs split REPLICATE",
                       file, net->layer[net->n_layer - 1]->name);
    return CT_OK;
}

/* ---- what an opened net asks */

static ct_status agree(void *ctx, ct_status mine)
{
    const ct_divided_net *n = ctx;
    ct_status all;

    if (n->repeats) return ct_job_agree(n->comm, n->job->rank - n->comm->rank, mine);
    all = ct_group_agree(&n->group.group.job, mine);
    if (mine == CT_OK) n->job->told = (all != CT_OK);
    return all;
}

static ct_status least(void *ctx, int64_t *v)
{
    const ct_divided_net *n = ctx;
    int64_t most = -*v;

    CT_TRY(ct_group_max(&n->group.group.job, &most, 1));
    *v = -most;
    return CT_OK;
}

static ct_status share(void *ctx, double *v)
{
    const ct_divided_net *n = ctx;

    return ct_group_broadcast(&n->group.group.job, v, sizeof(*v));
}

/* Of sums with their ranks the pieces of 16 bits are added up, which doubles do exactly. */
static ct_status combine(void *ctx, uint64_t *sum)
{
    const ct_divided_net *n = ctx;
    double piece[4];
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, &n->comm->rank, sizeof(n->comm->rank));
    ct_hash_add(&h, sum, sizeof(*sum));
    for (int i = 0; i < 4; i++) piece[i] = (double)((ct_hash_value(&h) >> (16 * i)) & 0xffff);
    CT_TRY(ct_group_sum(&n->group.group.job, piece, 4));
    ct_hash_init(&h);
    ct_hash_add(&h, piece, sizeof(piece));
    *sum = ct_hash_value(&h);
    return CT_OK;
}

/* The file of tensor:N, for this net. */
static ct_status make_file(const ct_divided_net *n, const Ct__NetParameter *param,
                           const ct_net_options *options, ct_text *text)
{
    ct_net_options o = *options;
    ct_net *net = NULL;
    ct_status status;
    int n_run = 0;

    ct_net_options_alone(&o);
    o.phase = CT_TRAIN;
    o.env.global_batch_size = 1;
    CT_TRY(ct_net_create(param, &o, &net));
    status = ct_tensor_file_write(net, n->tensor, n->file, text, &n_run);
    ct_net_destroy(net);
    if (status == CT_OK) CT_INFO("%s: the ranks share %d runs of products.", n->file, n_run);
    return status;
}

static ct_status read_parallel(const ct_divided_net *n, const Ct__NetParameter *param,
                               const ct_net_options *options, ct_parallel **p_p)
{
    ct_text text = { 0 };
    ct_status status;

    if (n->tensor == 0) return ct_parallel_parse(n->file, n->text, n->size, p_p);
    status = make_file(n, param, options, &text);
    if (status == CT_OK) status = ct_parallel_parse(n->file, text.text, text.length, p_p);
    ct_text_destroy(&text);
    return status;
}

static ct_status divide(void *ctx, const Ct__NetParameter **param_p, ct_net_options *options,
                        void **part_p)
{
    ct_divided_net *n = ctx;
    part *p = calloc(1, sizeof(*p));

    *part_p = p;
    CT_TRY(agree(ctx, (p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a division")));
    p->of = n;
    CT_TRY(read_parallel(n, *param_p, options, &p->parallel));
    CT_TRY(ct_job_division_open_net(&n->group, p->parallel, NULL, param_p, options, &p->division));
    return check(p, &p->division->sharded[1]);
}

static void fill_exec(const void *of, ct_exec *ex)
{
    ct_job_division_fill_exec(((const part *)of)->division, ex);
}

typedef struct loading {
    const char *files;
    ct_parts *parts;
} loading;

/* On rank 0: each of the files into what all ranks have. */
static ct_status load_parts(void *ctx, ct_storage *whole)
{
    const loading *l = ctx;
    char *list = strdup(l->files);
    ct_status status = CT_OK;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *rest = list, *at; (status == CT_OK) && ((at = strsep(&rest, ",")) != NULL);)
        status = ct_weights_load_parts(at, l->parts, whole);
    free(list);
    return status;
}

static ct_status load(void *of, const char *files, ct_net *net)
{
    const part *p = of;
    loading l = { .files = files };
    ct_storage weights;
    ct_status status;

    CT_TRY(ct_parts_create(p->division->whole.test[0], net, &p->of->group.group.job, &l.parts));
    weights = ct_parts_weights(l.parts);
    status = ct_parts_run(l.parts, &(ct_storage *){ &weights }, 1, load_parts, &l);
    ct_parts_destroy(l.parts);
    if (status == CT_OK) ct_net_weights_changed(net);
    return status;
}

static void close_part(void *of)
{
    part *p = of;

    if (p == NULL) return;
    ct_job_division_close(p->division);
    ct_parallel_destroy(p->parallel);
    free(p);
}

/* ---- the file */

/* Of rank 0 alone, so that no two ranks have unlike ones. */
static ct_status read_file(ct_divided_net *n)
{
    void *text = NULL;
    ct_status status = CT_OK;

    if (n->job->rank == 0) {
        status = ct_settings_read(n->file, &n->text, &n->size);
        text = n->text;
    }
    CT_TRY(ct_job_share(n->job, status));
    CT_TRY(ct_job_broadcast(n->job, &text, &n->size));
    n->text = text;
    return CT_OK;
}

/* "tensor:N"; 0 where it is the name of a file. */
static ct_status read_tensor(ct_divided_net *n)
{
    static const char word[] = "tensor:";
    const char *number = n->file + sizeof(word) - 1;
    char *end;
    int64_t v;

    if (strncmp(n->file, word, sizeof(word) - 1) != 0) return CT_OK;
    if (!ct_number_integer(number, &end, &v) || (*end != '\0') || (v < 2) ||
        (v > CT_TENSOR_FILE_MOST))
        return CT_FAIL(CT_ERR_CONFIG, "--parallel=%s: expected a file, or tensor:N, N from 2 to %d",
                       n->file, CT_TENSOR_FILE_MOST);
    n->tensor = (int)v;
    return CT_OK;
}

static ct_status check_ranks(const ct_divided_net *n, const ct_parallel *p, bool groups)
{
    int n_rank = (p != NULL) ? p->n_rank : n->tensor;

    if (groups && (n->job->size % n_rank != 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--parallel=%s: each net takes %d ranks, and the job's %d are no multiple",
                       n->file, n_rank, n->job->size);
    if (groups) return CT_OK;
    if (p != NULL) return ct_parallel_check_ranks(p, n->job->size, "the job");
    if (n_rank == n->job->size) return CT_OK;
    return CT_FAIL(CT_ERR_LAUNCH, "--parallel=%s: %d ranks, but the job has %d", n->file, n_rank,
                   n->job->size);
}

static ct_status find_ranks(ct_divided_net *n, bool groups)
{
    ct_parallel *p = NULL;
    ct_status status;

    if (n->tensor == 0) CT_TRY(ct_parallel_parse(n->file, n->text, n->size, &p));
    status = check_ranks(n, p, groups);
    n->n_rank = (p != NULL) ? p->n_rank : n->tensor;
    ct_parallel_destroy(p);
    return status;
}

static ct_status open_group(ct_divided_net *n)
{
    ct_job *g = &n->group;

    CT_TRY(ct_comm_split(n->job->comm, n->job->rank / n->n_rank, n->job->rank, &n->comm));
    *g = *n->job;
    g->comm = g->data_comm = n->comm;
    g->rank = n->comm->rank;
    g->size = n->comm->size;
    return ct_job_open_groups(g);
}

ct_status ct_divided_net_open(ct_job *job, const char *file, bool groups, ct_divided_net *n_p)
{
    *n_p = (ct_divided_net){ .job = job, .file = file };
    n_p->served = (ct_deployed_division){ .ctx = n_p,
                                          .agree = agree,
                                          .least = least,
                                          .share = share,
                                          .combine = combine,
                                          .divide = divide,
                                          .fill_exec = fill_exec,
                                          .load = load,
                                          .close = close_part };
    CT_TRY(read_tensor(n_p));
    if (n_p->tensor == 0) CT_TRY(read_file(n_p));
    CT_TRY(find_ranks(n_p, groups));
    return open_group(n_p);
}

void ct_divided_net_close(ct_divided_net *n)
{
    ct_comm_destroy(n->comm);
    n->comm = NULL;
    free(n->text);
    n->text = NULL;
}
