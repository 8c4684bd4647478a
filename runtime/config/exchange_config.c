/* `comm`, `compression { }` and `compress { }`: read, and refused where they make no sense. */
#include "runtime/config/exchange_config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/autotune/autotune.h"
#include "comm/autotune/codec_planner.h"
#include "comm/collective/coll.h"
#include "framework/proto/prototxt.h"
#include "framework/solver/update_rule.h"
#include "framework/solver/solver.h"
#include "runtime/config/config.h"

/* An enum's value by its name in the schema, as the tables of comm/ know it. */
static ct_status value_name(const ProtobufCEnumDescriptor *type, int value, const char *who,
                            const char *field, const char **name_p)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);

    *name_p = (v != NULL) ? ct_codec_word(v->name) : NULL;
    if (*name_p == NULL)
        return CT_FAIL(CT_ERR_CONFIG, "%s { %s: %d }: no such value", who, field, value);
    return CT_OK;
}

/* What a codec has a use for; AUTO: any of those that it may take. */
typedef struct uses {
    unsigned fields;    /* of ct_codec_field */
    const char *chains; /* the last of those that do (codec.h); NULL: none */
} uses;

static void add_uses(const ct_codec_ops *codec, const ct_codec_config *c, uses *u)
{
    unsigned kept = ct_codec_keeps(codec, c) ? 0 : CT_CODEC_USES_RESYNC;

    u->fields |= codec->uses & ~kept;
    if (codec->chains) u->chains = codec->name;
}

static bool used(const uses *u, ct_codec_field field)
{
    return (u->fields & (unsigned)field) != 0;
}

static ct_status find_uses(const ct_codec_ops *codec, const ct_codec_config *c, uses *u)
{
    ct_codec_candidates ways;

    *u = (uses){ .fields = codec->chooses ? CT_CODEC_USES_AMONG : 0 };
    if (!codec->chooses) {
        add_uses(codec, c, u);
        return CT_OK;
    }
    CT_TRY(ct_codec_candidates_list(c, false, &ways));
    for (int i = 1; i < ways.n; ++i) add_uses(ways.way[i].ops, c, u);
    u->fields &= ~(unsigned)CT_CODEC_USES_FREEZE; /* no step of a trial could be taken back */
    return CT_OK;
}

/* A field was given that codecs of this kind do not look at: the user expects something else. */
static ct_status check_unused(const Ct__CompressionParameter *p, const char *who,
                              const ct_codec_ops *codec, const ct_codec_config *c)
{
    const struct {
        const char *name;
        bool given;
        ct_codec_field field;
        const char *whom; /* NULL: the codecs by their names */
    } field[] = {
        { "density", p->has_density, CT_CODEC_USES_DENSITY, NULL },
        { "warmup_density", p->has_warmup_density, CT_CODEC_USES_DENSITY, NULL },
        { "exchange", p->has_exchange, CT_CODEC_USES_DENSITY, NULL },
        { "selection", p->has_selection, CT_CODEC_USES_DENSITY, NULL },
        { "wire", p->has_wire, CT_CODEC_USES_DENSITY, NULL },
        { "quantize", p->has_quantize && p->quantize, CT_CODEC_USES_DENSITY, NULL },
        { "rank", p->has_rank, CT_CODEC_USES_RANK, NULL },
        { "among", p->n_among > 0, CT_CODEC_USES_AMONG, NULL },
        { "momentum_correction", p->has_momentum_correction && p->momentum_correction,
          CT_CODEC_USES_MOMENTUM_CORRECTION, NULL },
        { "mask_momentum", p->has_mask_momentum && p->mask_momentum, CT_CODEC_USES_MASK_MOMENTUM,
          NULL },
        { "error_feedback", p->has_error_feedback, CT_CODEC_USES_FEEDBACK, NULL },
        { "freeze_variance", p->has_freeze_variance && p->freeze_variance, CT_CODEC_USES_FREEZE,
          NULL },
        { "resync_iter", p->has_resync_iter && (p->resync_iter > 0), CT_CODEC_USES_RESYNC,
          "codecs that leave something behind" },
    };
    uses u;

    if (p->type == CT__COMPRESSION_PARAMETER__TYPE__NONE) return CT_OK; /* the rest may stay */
    CT_TRY(find_uses(codec, c, &u));
    for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); ++i) {
        char users[128];

        if (!field[i].given || used(&u, field[i].field)) continue;
        ct_codec_users(field[i].field, users, sizeof(users));
        return CT_FAIL(CT_ERR_CONFIG, "%s: %s means nothing to %s; it is for %s", who,
                       field[i].name, codec->chooses ? "what AUTO may take here" : codec->name,
                       (field[i].whom != NULL) ? field[i].whom : users);
    }
    return CT_OK;
}

/* Fields that say nothing together, of any type that compresses. */
static ct_status check_fields(const Ct__CompressionParameter *p, const char *who,
                              const ct_codec_ops *codec)
{
    if (p->type == CT__COMPRESSION_PARAMETER__TYPE__NONE) return CT_OK;
    if (p->resync_iter == 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: resync_iter: 1 sends every iteration dense, and %s never sends; take 2 "
                       "or more, 0 for no resync, or no compression",
                       who, codec->name);
    return CT_OK;
}

/* Its own word, or by the solver's rule: what puts the rate and momentum in front of what is left
 * behind has to know them. */
static ct_status read_correction(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                                 const char *who, const ct_codec_ops *codec, bool *corrects_p)
{
    *corrects_p = ct_codec_absorbs(codec) &&
                  (p->has_momentum_correction ? p->momentum_correction
                                              : ct_update_rule_corrects(ct_update_rule_type(s)));
    if (p->has_mask_momentum && p->mask_momentum && !*corrects_p &&
        (p->has_momentum_correction || ct_codec_absorbs(codec)))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: mask_momentum: true masks the momentum of momentum_correction, which is "
            "false here%s; leave mask_momentum out",
            who, p->has_momentum_correction ? "" : " since the solver's type has another rule");
    return CT_OK;
}

/* 1-bit Adam: a warm-up in which the variance is found, and then a rule that goes on without. */
static bool reads_freeze(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                         const ct_codec_ops *codec)
{
    if (!ct_codec_uses(codec, CT_CODEC_USES_FREEZE)) return false;
    return p->has_freeze_variance ? p->freeze_variance
                                  : (ct_update_rule_freezes(s->type) && (p->warmup_iter > 0));
}

/* The codecs that AUTO may choose among, by their places in the table. */
static ct_status read_among(const Ct__CompressionParameter *p, const char *who, uint32_t *among_p)
{
    for (size_t i = 0; i < p->n_among; ++i) {
        const ct_codec_ops *codec = NULL;
        const char *name = NULL;

        CT_TRY(value_name(&ct__compression_parameter__type__descriptor, (int)p->among[i], who,
                          "among", &name));
        CT_TRY(ct_codec_find(name, &codec));
        if (codec->size == 0)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s { among: %s }: AUTO chooses among codecs that compress, and NONE, "
                           "which it may always take",
                           who, name);
        for (uint32_t k = 0; ct_codec_table[k] != NULL; ++k)
            if (ct_codec_table[k] == codec) *among_p |= (uint32_t)1 << k;
    }
    return CT_OK;
}

ct_status ct_codec_read_config(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                               const char *who, const ct_codec_ops **codec_p,
                               ct_codec_config *config_p)
{
    const Ct__CompressionParameter plain = CT__COMPRESSION_PARAMETER__INIT;
    const char *name = NULL;
    ct_codec_config c = { .density = 0 };
    uses u;

    if (p == NULL) p = &plain;
    CT_TRY(
        value_name(&ct__compression_parameter__type__descriptor, (int)p->type, who, "type", &name));
    CT_TRY(ct_codec_find(name, codec_p));
    CT_TRY(check_fields(p, who, *codec_p));
    CT_TRY(value_name(&ct__compression_parameter__exchange__kind__descriptor, (int)p->exchange, who,
                      "exchange", &c.exchange));
    CT_TRY(value_name(&ct__compression_parameter__selection__kind__descriptor, (int)p->selection,
                      who, "selection", &c.selection));
    CT_TRY(value_name(&ct__compression_parameter__wire__kind__descriptor, (int)p->wire, who, "wire",
                      &c.wire));
    c.density = p->density;
    c.min_bytes = p->min_bytes;
    c.warmup_iterations = p->warmup_iter;
    c.warmup_density = p->warmup_density;
    c.resync_iterations = p->resync_iter;
    c.quantize = p->quantize;
    CT_TRY(read_correction(s, p, who, *codec_p, &c.momentum_correction));
    c.mask_momentum = p->mask_momentum;
    c.error_feedback = p->error_feedback;
    c.freeze_variance = reads_freeze(s, p, *codec_p);
    c.rank = p->rank;
    c.local_clip = p->local_clip;
    CT_TRY(read_among(p, who, &c.among));
    CT_TRY(ct_codec_check(*codec_p, &c, who));
    CT_TRY(find_uses(*codec_p, &c, &u)); /* AUTO: every codec takes these settings */
    *config_p = c;
    return CT_OK;
}

/* The same of what a user gave: fields that the type, or any codec that AUTO may take, has no use
 *  for are CT_ERR_CONFIG, too. */
static ct_status codec_read_used(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                                 const char *who, const ct_codec_ops **codec_p,
                                 ct_codec_config *config_p)
{
    CT_TRY(ct_codec_read_config(s, p, who, codec_p, config_p));
    return (p != NULL) ? check_unused(p, who, *codec_p, config_p) : CT_OK;
}

ct_status ct_codec_read_own(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                            const char *who, const ct_codec_ops **codec_p,
                            ct_codec_config *config_p)
{
    if (p->type == CT__COMPRESSION_PARAMETER__TYPE__AUTO)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: type AUTO chooses for all parameters together, so it stands in the "
                       "solver's compression; here, say NONE or a codec",
                       who);
    CT_TRY(codec_read_used(s, p, who, codec_p, config_p));
    /* it stands for clip_gradients, which is of the whole solver */
    if (!p->has_local_clip && (s->compression != NULL))
        config_p->local_clip = s->compression->local_clip;
    return CT_OK;
}

/* ---- what makes no sense together */

/* clip_gradients is given, but local_clip takes its place. */
static bool compression_clips(const Ct__SolverParameter *param)
{
    const Ct__CompressionParameter *p = param->compression;

    return (param->clip_gradients >= 0) && (p != NULL) && (p->local_clip > 0);
}

static bool given(const char *name, const char *other)
{
    return (name != NULL) && (strcmp(name, other) == 0);
}

/* Ranks that update parts of the weights need parts of the sum. */
static ct_status check_zero(const Ct__SolverParameter *s, const char *who,
                            const ct_codec_ops *codec)
{
    if ((s->memory == NULL) || (s->memory->zero == 0) || codec->parts) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: memory { zero: %d } sums parts of gradients, and compression %s sends them "
                   "whole: take BF16 or FP16, or zero: 0",
                   who, s->memory->zero, codec->name);
}

/* What it sums is added to the weights as they lie in memory, and the decay reads them there after
 * their layers have run. */
static ct_status check_files(const Ct__SolverParameter *s, const char *who,
                             const ct_codec_ops *codec, const ct_codec_config *c, const uses *u)
{
    if (!used(u, CT_CODEC_USES_MOMENTUM_CORRECTION) || !c->momentum_correction) return CT_OK;
    if ((s->memory == NULL) || (s->memory->weights != CT__MEMORY_PARAMETER__TIER__FILE))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: momentum_correction of %s changes weights where they lie, and memory { "
                   "weights: FILE } has them elsewhere: take momentum_correction: false, state: "
                   "FILE alone, or a codec that keeps nothing, such as BF16",
                   who, codec->name);
}

/* The norm is of what is summed: gradients, not updates; and of the codecs that the run ends with.
 */
static ct_status check_clip(const Ct__SolverParameter *s, const char *who,
                            const ct_codec_ops *codec, const ct_codec_config *c, const uses *u)
{
    bool corrects = used(u, CT_CODEC_USES_MOMENTUM_CORRECTION) && c->momentum_correction;

    if ((s->clip_gradients < 0) || !used(u, CT_CODEC_USES_RESYNC) || compression_clips(s))
        return CT_OK;
    if (codec->chooses)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: clip_gradients: %g is a limit of what is summed, and codecs that AUTO "
                       "tries here leave some of it behind: name a codec, leave those with a "
                       "residual out of \"among\", or choose compression { local_clip: %g } (the "
                       "limit then holds for each gradient of each rank)",
                       who, (double)s->clip_gradients, (double)s->clip_gradients);
    if (!corrects) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: clip_gradients: %g is a limit of the summed gradient, but with "
                   "momentum_correction %s sums updates, which have rate and momentum in them: "
                   "take momentum_correction: false (the limit is then that of what is summed), "
                   "compression { local_clip: %g } (the limit of each gradient of each rank), or a "
                   "codec that keeps nothing, such as BF16 or INT8",
                   who, (double)s->clip_gradients, codec->name, (double)s->clip_gradients);
}

/* The rule's mean is sent in place of gradients, and its mean square stays as the warm-up left it.
 */
static ct_status check_freeze(const Ct__SolverParameter *s, const char *who,
                              const ct_codec_config *c)
{
    const char *type = (s->type != NULL) ? s->type : "SGD";

    if (!c->freeze_variance) return CT_OK;
    if (!ct_update_rule_freezes(type))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: freeze_variance keeps the variance of Adam and AdamW as it is, and "
                       "type \"%s\" has none: leave it out",
                       who, type);
    if (c->warmup_iterations == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: freeze_variance keeps the variance that the warm-up finds: give "
                       "warmup_iter, a sixth of max_iter or less is usual, or freeze_variance: "
                       "false",
                       who);
    if (s->precision == CT__SOLVER_PARAMETER__PRECISION__FP16)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: freeze_variance sends a mean, whose steps are not taken back where "
                       "precision: FP16 finds an overflow: take precision: BF16, or "
                       "freeze_variance: false",
                       who);
    if ((s->clip_gradients < 0) || compression_clips(s)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: clip_gradients: %g is a limit of the summed gradient, and freeze_variance "
                   "sums signs of a mean: take compression { local_clip: %g } (the limit of each "
                   "gradient of each rank), freeze_variance: false, or type INT8",
                   who, (double)s->clip_gradients, (double)s->clip_gradients);
}

ct_status ct_codec_check_solver(const Ct__SolverParameter *s, const char *who,
                                const ct_codec_ops *codec, const ct_codec_config *c)
{
    const ct_update_rule *rule = NULL;
    uses u;

    if (strcmp(codec->name, "none") == 0) return CT_OK;
    CT_TRY(check_zero(s, who, codec));
    CT_TRY(find_uses(codec, c, &u));
    CT_TRY(ct_update_rule_find(ct_update_rule_type(s), &rule));
    if (used(&u, CT_CODEC_USES_MOMENTUM_CORRECTION) && c->momentum_correction && !rule->corrects)
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: momentum_correction puts the momentum of SGD or Nesterov in front of what %s "
            "leaves behind, and type \"%s\" has another rule: take momentum_correction: false, "
            "a codec that keeps nothing such as BF16, or type \"SGD\" or \"Nesterov\"",
            who, codec->name, rule->type);
    CT_TRY(check_files(s, who, codec, c, &u));
    CT_TRY(check_freeze(s, who, c));
    CT_TRY(check_clip(s, who, codec, c, &u));
    if (s->reproducible_sum)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: reproducible_sum: true, but compression %s rounds what it sends in an "
                       "order that depends on buckets and placement: use one or the other",
                       who, codec->name);
    if ((u.chains != NULL) && (s->comm != NULL) && given(s->comm->allreduce, "impi"))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: %s begins a sum where another ends, and the ranks do so in any order; "
            "MPI's own allreduce wants one order: leave comm { allreduce: \"impi\" } out, "
            "or take another%s",
            who, u.chains, codec->chooses ? " in \"among\"" : "");
    if (s->deterministic && used(&u, CT_CODEC_USES_DENSITY) && given(c->exchange, "oktopk"))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: deterministic: true, but the regions and thresholds of exchange OKTOPK "
                       "come from the steps before, which a resumed run has not seen: take "
                       "ALLGATHER, HIER or GTOPK",
                       who);
    if (s->deterministic && used(&u, CT_CODEC_USES_DENSITY) &&
        (given(c->selection, "sampled") || given(c->selection, "redsync_sizes")))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: deterministic: true, but selection %s reuses thresholds of the steps "
                       "before, which a resumed run has not seen: take EXACT, TRIMMED or SEARCH",
                       who, c->selection);
    if (used(&u, CT_CODEC_USES_MOMENTUM_CORRECTION) && c->momentum_correction &&
        (s->regularization_type != NULL) && (s->weight_decay != 0) &&
        (strcmp(s->regularization_type, "L1") == 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: momentum_correction applies the decay before anything is left behind, "
                       "and knows that of regularization_type L2 only; take "
                       "momentum_correction: false",
                       who);
    return CT_OK;
}

static ct_status check_net(const ct_solver_text *t, const Ct__NetParameter *net)
{
    const Ct__SolverParameter *s = t->p;

    if (net == NULL) return CT_OK;
    for (size_t i = 0; i < net->n_layer; ++i) {
        const Ct__LayerParameter *l = net->layer[i];

        for (size_t w = 0; w < l->n_param; ++w) {
            const ct_codec_ops *codec = NULL;
            ct_codec_config c;
            char who[640];

            if (l->param[w]->compress == NULL) continue;
            snprintf(
                who, sizeof(who), "%s: layer \"%.128s\", param %zu, compress",
                ct_source_map_where(t->map, l->param[w], &l->param[w]->compress, "solver").text,
                (l->name != NULL) ? l->name : "", w);
            CT_TRY(ct_codec_read_own(s, l->param[w]->compress, who, &codec, &c));
            CT_TRY(ct_codec_check_solver(s, who, codec, &c));
        }
    }
    return CT_OK;
}

/* A difference has been through the group's own gradients. */
void ct_outer_param_fill(const Ct__SolverParameter *solver, ct_outer_param *p)
{
    const Ct__CommParameter comm = CT__COMM_PARAMETER__INIT;
    const Ct__CompressionParameter none = CT__COMPRESSION_PARAMETER__INIT;
    const Ct__CompressionParameter *c = solver->outer->compression;

    p->solver = *solver;
    p->comm = (solver->comm != NULL) ? *solver->comm : comm;
    p->comm.progress = CT__COMM_PARAMETER__PROGRESS__POLL;
    p->comm.tune_iterations = 0; /* exchanges are too few to try things in */
    p->compression = (c != NULL) ? *c : none;
    p->compression.has_momentum_correction = true;
    p->compression.momentum_correction = false;
    p->compression.has_freeze_variance = true; /* the outer rules have none */
    p->compression.freeze_variance = false;
    p->solver.comm = &p->comm;
    p->solver.compression = &p->compression;
    p->solver.memory = NULL;
    p->solver.clip_gradients = -1.0f;
    p->solver.weight_decay = 0.0f;
}

static ct_status check_outer(const Ct__SolverParameter *solver, const struct ct_source_map *map)
{
    const Ct__OuterParameter *o = solver->outer;
    const Ct__CompressionParameter *c = (o != NULL) ? o->compression : NULL;
    const ct_codec_ops *codec = NULL;
    ct_outer_param p;
    ct_codec_config config;
    char who[400] = "outer.compression";
    ct_place place = ct_source_map_find(map, c);

    if (c == NULL) return CT_OK;
    if (place.line > 0)
        snprintf(who, sizeof(who), "%s:%d:%d: outer.compression", place.file, place.line,
                 place.column);
    ct_outer_param_fill(solver, &p);
    CT_TRY(codec_read_used(solver, c, who, &codec, &config));
    if (codec->chooses)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: type AUTO tries codecs in steps, which exchanges are too few for: "
                       "name one",
                       who);
    if (c->has_freeze_variance && c->freeze_variance)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: freeze_variance is for gradients of Adam: the outer optimiser has no "
                       "variance",
                       who);
    if ((c->has_momentum_correction && c->momentum_correction) ||
        (c->has_mask_momentum && c->mask_momentum))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: momentum_correction is for gradients: the momentum of differences is "
                       "the outer optimiser's",
                       who);
    CT_TRY(ct_codec_read_config(&p.solver, &p.compression, who, &codec, &config));
    return ct_codec_check_solver(&p.solver, who, codec, &config);
}

ct_status ct_compression_check(const Ct__SolverParameter *param, const struct ct_source_map *map)
{
    const ct_codec_ops *codec = NULL;
    ct_place place = ct_source_map_find(map, param->compression);
    const ct_solver_text text = { param, map };
    char who[400] = "compression";
    ct_codec_config c;

    if (place.line > 0)
        snprintf(who, sizeof(who), "%s:%d:%d: compression", place.file, place.line, place.column);
    CT_TRY(codec_read_used(param, param->compression, who, &codec, &c));
    CT_TRY(ct_codec_check_solver(param, who, codec, &c));
    CT_TRY(check_outer(param, map));
    CT_TRY(check_net(&text, param->net_param));
    return check_net(&text, param->train_net_param);
}

/* ---- --compression */

enum { MOST_TYPES = 16 };

static void copy_cased(char *to, size_t size, const char *from, size_t n, int (*as)(int))
{
    size_t k = 0;

    for (; (k < n) && (k + 1 < size); ++k) to[k] = (char)as((unsigned char)from[k]);
    to[k] = '\0';
}

static ct_status check_type(const char *type, const char *spec, const char *who)
{
    const ProtobufCEnumDescriptor *all = &ct__compression_parameter__type__descriptor;
    char lower[MOST_TYPES][16];
    const char *known[MOST_TYPES], *near = NULL;
    ct_text list = { .text = NULL };
    int n = 0;
    ct_status status = CT_OK;

    for (unsigned i = 0; (i < all->n_values) && (n < MOST_TYPES); ++i) {
        const char *name = all->values[i].name;

        copy_cased(lower[n], sizeof(lower[n]), name, strlen(name), tolower);
        if (strcmp(lower[n], type) == 0) {
            ct_text_destroy(&list);
            return CT_OK;
        }
        ct_text_add(&list, "%s%s", (n > 0) ? ", " : "", lower[n]);
        known[n] = lower[n];
        n += 1;
    }
    near = ct_text_nearest(type, known, n);
    status = CT_FAIL(CT_ERR_CONFIG, "%s=%s: unknown type \"%s\"; expected one of %s%s%s%s", who,
                     spec, type, (list.text != NULL) ? list.text : "",
                     (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                     (near != NULL) ? "\"?" : "");
    ct_text_destroy(&list);
    return status;
}

static const ProtobufCFieldDescriptor *find_field(const char *field)
{
    return protobuf_c_message_descriptor_get_field_by_name(&ct__compression_parameter__descriptor,
                                                           field);
}

/* The names of an enum's values are upper case in the schema. */
static bool is_enum(const char *field)
{
    const ProtobufCFieldDescriptor *f = find_field(field);

    return (f != NULL) && (f->type == PROTOBUF_C_TYPE_ENUM);
}

/* FIELD=A,FIELD=B: the values up to here, with commas. */
static void collect(ct_text *list, const char *field, char *value, size_t size)
{
    const ProtobufCFieldDescriptor *f = find_field(field);

    if ((f == NULL) || (f->label != PROTOBUF_C_LABEL_REPEATED)) return;
    ct_text_add(list, "%s%s", (list->length > 0) ? "," : "", value);
    if (list->text != NULL) snprintf(value, size, "%s", list->text);
}

static int as_it_is(int c)
{
    return c;
}

ct_status ct_config_compression(Ct__SolverParameter *solver, const char *spec, const char *who)
{
    size_t n = strcspn(spec, ":");
    char type[16], path[64], field[32], value[160];
    ct_text list = { .text = NULL }; /* of the one field that may be there more than once */
    ct_status status = CT_OK;

    copy_cased(type, sizeof(type), spec, n, as_it_is);
    CT_TRY(check_type(type, spec, who));
    copy_cased(type, sizeof(type), spec, n, toupper);
    CT_TRY(ct_prototxt_set(&solver->base, "compression.type", type, who));
    for (const char *at = spec + n; (status == CT_OK) && (*at != '\0');) {
        size_t name = strcspn(++at, "=,"), end;

        if ((at[name] != '=') || (name == 0) || (name >= sizeof(field))) {
            status =
                CT_FAIL(CT_ERR_CONFIG, "%s=%s: expected TYPE:FIELD=VALUE,FIELD=VALUE", who, spec);
            break;
        }
        copy_cased(field, sizeof(field), at, name, as_it_is);
        at += name + 1;
        end = strcspn(at, ",");
        copy_cased(value, sizeof(value), at, end, is_enum(field) ? toupper : as_it_is);
        collect(&list, field, value, sizeof(value));
        snprintf(path, sizeof(path), "compression.%s", field);
        status = ct_prototxt_set(&solver->base, path, value, who);
        at += end;
    }
    if (list.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", who);
    ct_text_destroy(&list);
    return status;
}

enum { MOST_TUNE = 10000 };

/* ---- the settings of the exchange */

static ct_status progress_kind(const Ct__CommParameter *p, ct_progress_kind *kind_p)
{
    switch (p->progress) {
    case CT__COMM_PARAMETER__PROGRESS__AUTO:
        *kind_p = CT_PROGRESS_AUTO;
        return CT_OK;
    case CT__COMM_PARAMETER__PROGRESS__POLL:
        *kind_p = CT_PROGRESS_POLL;
        return CT_OK;
    case CT__COMM_PARAMETER__PROGRESS__THREAD:
        *kind_p = CT_PROGRESS_THREAD;
        return CT_OK;
    default:
        return CT_FAIL(CT_ERR_CONFIG, "comm { progress: %d }: no such kind", (int)p->progress);
    }
}

ct_status ct_comm_check(const Ct__SolverParameter *param, const struct ct_source_map *map)
{
    const ct_solver_text text = { param, map }, *t = &text;
    const Ct__CommParameter *comm = param->comm;
    double bytes = (comm != NULL) ? ldexp((double)comm->bucket_mb, 20) : 0;

    if (comm == NULL) return CT_OK;
    if ((!(bytes >= 1) && (bytes != 0)) || (bytes > ldexp(1, 40)))
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: comm { bucket_mb: %g }: expected a size in MiB, up to 2^20, or 0: automatic",
            CT_SOLVER_AT(t, comm->bucket_mb), (double)comm->bucket_mb);
    if ((comm->tune_iterations < 0) || (comm->tune_iterations > MOST_TUNE))
        return CT_FAIL(CT_ERR_CONFIG, "%s: comm { tune_iterations: %d }: expected 0 to %d",
                       CT_SOLVER_AT(t, comm->tune_iterations), (int)comm->tune_iterations,
                       MOST_TUNE);
    return ct_coll_check_spec(comm->allreduce, CT_SOLVER_AT(t, comm->allreduce));
}

ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config)
{
    const Ct__CommParameter none = CT__COMM_PARAMETER__INIT;
    const Ct__CommParameter *comm = (param->comm != NULL) ? param->comm : &none;

    CT_TRY(ct_comm_check(param, NULL));
    config->policy = &ct_autotune;
    config->bucket_bytes = (int64_t)ldexp((double)comm->bucket_mb, 20);
    config->allreduce = comm->allreduce;
    /* Caffe's name for it holds where ours is not given */
    config->overlap = comm->has_overlap ? (comm->overlap != 0) : (param->layer_wise_reduce != 0);
    config->after_all =
        ct_update_waits_for_all(param) || ((param->memory != NULL) && (param->memory->zero > 0) &&
                                           ct_update_rule_has_ratio(ct_update_rule_type(param)));
    config->reproducible = (param->reproducible_sum != 0);
    config->deterministic = (param->deterministic != 0);
    config->verify = (param->verify_memory != 0);
    /* what was fastest this time may add in another order than what is next time */
    config->tune_iterations = param->deterministic ? 0 : comm->tune_iterations;
    CT_TRY(progress_kind(comm, &config->progress));
    config->momentum = param->momentum;
    config->nesterov = ct_update_rule_is_nesterov(ct_update_rule_type(param));
    return codec_read_used(param, param->compression, "compression", &config->codec,
                           &config->codec_config);
}

ct_status ct_exchange_check_device(const ct_device *dev, const ct_grad_pipe_config *config,
                                   const ct_codec_ops *codec, const char *who)
{
    const char *name = dev->name;

    if (strcmp(codec->name, "none") == 0) return CT_OK;
    if (!codec->on_device)
        return CT_FAIL(
            CT_ERR_CONFIG,
            "%s: compression %s of gradients on device %s is not there yet; the others are, and "
            "solver_mode: CPU has all",
            who, codec->name, name);
    if (config->codec_config.freeze_variance)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: freeze_variance of gradients on device %s is not there: take "
                       "freeze_variance: false, type INT8, or solver_mode: CPU",
                       who, name);
    if (config->progress == CT_PROGRESS_THREAD)
        return CT_FAIL(CT_ERR_CONFIG,
                       "comm { progress: THREAD }: with compression on device %s the main thread "
                       "moves messages; take POLL or AUTO",
                       name);
    if ((config->allreduce != NULL) && (strcmp(config->allreduce, "impi") == 0))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: on device %s sums begin when a gradient has come down, in any order; "
                       "MPI's own allreduce wants one order: leave comm { allreduce: \"impi\" } "
                       "out, or take another",
                       who, name);
    return CT_OK;
}
