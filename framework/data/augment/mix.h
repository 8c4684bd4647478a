/** @file mix.h  Mixup and CutMix: two samples of a batch become two mixtures, labels included.
 *
 * Samples 2 i and 2 i + 1 of the global batch are a pair. With a share s, drawn of (seed, position
 * of the first), the first becomes s of itself and 1 - s of the other, and the other likewise.
 * mixup adds up their values (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018),
 * CutMix exchanges a box of about 1 - s of the area (Yun et al., "CutMix", 2019). So a rank needs
 * no other rank's samples, and what comes out does not depend on the number of ranks.
 *
 * A label becomes a distribution over the classes: s for its own, 1 - s for the other's. In TEST
 * nothing is mixed, and labels stay numbers.
 */
#ifndef CT_AUGMENT_MIX_H
#define CT_AUGMENT_MIX_H

#include "framework/data/augment/draw.h"
#include "framework/data/sample.h"
#include "framework/net/exec.h"
#include "framework/proto/cortado.pb-c.h"

typedef struct ct_mixing {
    double mixup, cutmix; /* parameters of Beta; 0: not that one */
    int64_t classes;
} ct_mixing;

/** What p (NULL allowed) asks for in a phase; classes 0: nothing. CT_ERR_CONFIG, logged. */
ct_status ct_mixing_read(const Ct__TransformationParameter *p, ct_phase phase, const char *who,
                         ct_mixing *m_p);
static inline bool ct_mixing_acts(const ct_mixing *m)
{
    return m->classes > 0;
}
/** Mixes two samples of a shape, with the parameters of position `first`; the share that each keeps
 *  of itself. Where both are asked for, one of them is drawn. */
double ct_mixing_pair(const ct_mixing *m, const ct_shape *shape, uint64_t seed, int64_t first,
                      float *a, float *b);
/** Makes distributions of two labels, `classes` values each. Before, the first value of a and of b
 *  is the label. */
void ct_mixing_labels(const ct_mixing *m, double share, float *a, float *b);

#endif
