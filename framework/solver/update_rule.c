/* The update rules there are. Formulas as in Caffe. */
#include <string.h>

#include "framework/base/text.h"
#include "framework/math/math.h"
#include "framework/solver/solver.h"

static ct_status sgd_apply(const ct_update *u)
{
    return u->dev->math->sgd(NULL, u->count, u->scale, u->rate, u->momentum, u->decay_l2,
                             u->decay_l1, u->grad, u->state[0], u->weight);
}

static const ct_update_rule rule_table[] = {
    { .type = "SGD", .n_state = 1, .state_name = { "momentum" }, .apply = sgd_apply },
};
enum { N_RULE = (int)(sizeof(rule_table) / sizeof(rule_table[0])) };

/* Caffe's others. */
static const char *const not_yet[] = { "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam" };

ct_status ct_update_rule_find(const char *type, const ct_update_rule **rule_p)
{
    const char *known[N_RULE], *near;

    if (type == NULL) type = rule_table[0].type;
    for (int i = 0; i < N_RULE; i++) {
        if (strcmp(rule_table[i].type, type) == 0) {
            *rule_p = &rule_table[i];
            return CT_OK;
        }
        known[i] = rule_table[i].type;
    }
    for (size_t i = 0; i < sizeof(not_yet) / sizeof(not_yet[0]); i++) {
        if (strcmp(not_yet[i], type) == 0)
            return CT_FAIL(CT_ERR_CONFIG, "solver: type \"%s\" is not supported yet; known: SGD",
                           type);
    }
    near = ct_text_nearest(type, known, N_RULE);
    return CT_FAIL(CT_ERR_CONFIG, "solver: type \"%s\" is unknown%s%s%s; known: SGD", type,
                   (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                   (near != NULL) ? "\"?" : "");
}
