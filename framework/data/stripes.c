#include "framework/data/stripes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/base/rng.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/loader.h"

/* floor(k n / stripes), without the product */
int64_t ct_stripe_first(int64_t n, int64_t stripes, int64_t k)
{
    return n / stripes * k + n % stripes * k / stripes;
}

int64_t ct_stripe_of(int64_t n, int64_t stripes, int64_t i)
{
    int64_t k = (int64_t)((double)i * (double)stripes / (double)n); /* near enough */

    if (k > stripes - 1) k = stripes - 1;
    while (ct_stripe_first(n, stripes, k) > i) k--;
    while (ct_stripe_first(n, stripes, k + 1) <= i) k++;
    return k;
}

/* The stripe at place p of an epoch's order. Of B stripes R = n mod B are longer by one; those
 * before place p are floor(p R / B), so the q-th longer one has number ceil((q + 1) B / R) - 1 and
 * the q-th shorter one floor(q B / (B - R)). */
static int64_t stripe_at(uint64_t key, int64_t n, int64_t b, int64_t p)
{
    int64_t r = n % b, before = p * r / b;
    bool longer = (p + 1) * r / b > before;
    uint64_t q;

    if (longer) {
        q = ct_rng_permute(ct_rng_key(key, 1, 0), (uint64_t)before, (uint64_t)r);
        return (((int64_t)q + 1) * b + r - 1) / r - 1;
    }
    q = ct_rng_permute(ct_rng_key(key, 0, 0), (uint64_t)(p - before), (uint64_t)(b - r));
    return (int64_t)q * b / (b - r);
}

/* The sample at a position of the stream: epoch position / n, shuffled by stripes, with keys of
 *  (seed, epoch). 1 <= stripes <= n. */
static int64_t stripe_sample_at(uint64_t seed, int64_t stripes, int64_t position, int64_t n)
{
    int64_t epoch = position / n, i = position % n, place, k, first, size;
    uint64_t key;

    key = ct_rng_key(seed, ct_rng_hash((stripes > 1) ? "stripes" : "shuffle"), (uint64_t)epoch);
    if (stripes <= 1) return (int64_t)ct_rng_permute(key, (uint64_t)i, (uint64_t)n);
    place = ct_stripe_of(n, stripes, i);
    i -= ct_stripe_first(n, stripes, place);
    k = stripe_at(key, n, stripes, place);
    first = ct_stripe_first(n, stripes, k);
    size = ct_stripe_first(n, stripes, k + 1) - first;
    return first +
           (int64_t)ct_rng_permute(ct_rng_key(key, 2, (uint64_t)k), (uint64_t)i, (uint64_t)size);
}

/* ---- files */

void ct_shards_deal(ct_shards *s)
{
    memset(s->count, 0, sizeof(s->count));
    for (int64_t k = 0; k < s->stripes; k++) {
        s->count[k % s->n_file] +=
            ct_stripe_first(s->n, s->stripes, k + 1) - ct_stripe_first(s->n, s->stripes, k);
    }
}

int ct_shards_touched(const ct_shards *s, int64_t local)
{
    int64_t stripe = s->n / s->stripes, n = (local + stripe - 2) / stripe + 1;

    if (local <= 1) n = 1;
    return (n < s->n_file) ? (int)n : s->n_file;
}

/* A stripe is touched by at most ceil((longest - 1) / local) + 1 ranks; of the stripes of a global
 * batch, every n_file-th is the same file's. */
int ct_shards_readers(const ct_shards *s, int64_t local, int64_t ranks)
{
    int64_t stripe = s->n / s->stripes, longest = stripe + (s->n % s->stripes > 0);
    int64_t a_stripe, touched, most;

    if (local < 1) return (int)ranks;
    a_stripe = (longest + local - 2) / local + 1;
    touched = (local * ranks + stripe - 2) / stripe + 1;
    most = (touched + s->n_file - 1) / s->n_file * a_stripe;
    return (int)((most < ranks) ? most : ranks);
}

char *ct_shards_path(const char *folder, int k)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/shard-%05d.mdb", folder, k);
    return t.failed ? NULL : t.text;
}

ct_status ct_shards_write(const char *folder, const ct_shards *s)
{
    ct_text t = { 0 }, path = { 0 };
    ct_status status;

    ct_text_add(&t, "cortado shards 1\nsamples %" PRId64 "\nstripes %" PRId64 "\nfiles %d\n", s->n,
                s->stripes, s->n_file);
    ct_text_add(&path, "%s/shards.txt", folder);
    status = (t.failed || path.failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory")
                                       : ct_file_write(path.text, t.text, t.length);
    ct_text_destroy(&t);
    ct_text_destroy(&path);
    return status;
}

bool ct_shards_is_set(const char *path)
{
    ct_text t = { 0 };
    struct stat st;
    bool is;

    ct_text_add(&t, "%s/shards.txt", path);
    is = !t.failed && (stat(t.text, &st) == 0);
    ct_text_destroy(&t);
    return is;
}

static ct_status parse(const char *path, const char *text, const char *who, ct_shards *s)
{
    int end = -1, n_file = 0;
    int64_t n = 0, stripes = 0;

    (void)sscanf(text, "cortado shards 1 samples %" SCNd64 " stripes %" SCNd64 " files %d %n", &n,
                 &stripes, &n_file, &end);
    if ((end < 0) || (text[end] != '\0'))
        return CT_FAIL(CT_ERR_DATA, "%s: %s: not a list of shards", who, path);
    if ((n < 1) || (n > (int64_t)1 << 40) || (stripes < 1) || (stripes > CT_MAX_STRIPE) ||
        (stripes > n) || (n_file < 1) || (n_file > CT_MAX_SHARD) || (n_file > stripes)) {
        return CT_FAIL(CT_ERR_DATA,
                       "%s: %s: impossible: %" PRId64 " samples in %" PRId64
                       " stripes over %d files",
                       who, path, n, stripes, n_file);
    }
    *s = (ct_shards){ .n = n, .stripes = stripes, .n_file = n_file };
    ct_shards_deal(s);
    return CT_OK;
}

ct_status ct_shards_read(const char *folder, const char *who, ct_shards *s)
{
    ct_text path = { 0 };
    char *text = NULL;
    size_t size;
    ct_status status;

    ct_text_add(&path, "%s/shards.txt", folder);
    status = path.failed ? CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who)
                         : ct_settings_read(path.text, &text, &size);
    if (status == CT_OK) status = parse(path.text, text, who, s);
    free(text);
    ct_text_destroy(&path);
    return status;
}

/* ---- which samples a step and a rank take */

ct_status ct_share_of(int64_t global, int rank, int n_rank, ct_share *share_p)
{
    int64_t each = global / n_rank, more = global % n_rank;

    if (global < n_rank) {
        return CT_FAIL(CT_ERR_CONFIG,
                       "a global batch of %lld gives %d ranks less than one sample each",
                       (long long)global, n_rank);
    }
    share_p->global = global;
    share_p->local = each + (rank < more);
    share_p->first = rank * each + ((rank < more) ? rank : more);
    return CT_OK;
}

int64_t ct_sample_at(uint64_t seed, int64_t stripes, int64_t position, int64_t n)
{
    return (stripes == 0) ? position % n : stripe_sample_at(seed, stripes, position, n);
}

int64_t ct_sample_again_at(uint64_t seed, int64_t stripes, int64_t repeat, int64_t global,
                           int64_t position, int64_t n)
{
    int64_t apart; /* different samples of a batch */

    if (repeat <= 1) return ct_sample_at(seed, stripes, position, n);
    apart = global / repeat;
    return ct_sample_at(seed, stripes, position / global * apart + position % global % apart, n);
}
