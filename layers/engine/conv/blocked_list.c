/* More tiles of convolutions on blocked layouts: those whose taps are a table, for inputs that are
 * not blocked, and those of weight gradients. Compiled with -ffp-contract=fast, as blocked_tile.c.
 */
#include "layers/engine/conv/blocked.h"
#include "layers/engine/conv/blocked_vec.h"

/* _add: how; acc[i][] += values[i] lanes of factors at `from`, `step` floats apart */
#define ADD_TO(_add, _l, _b, _size, _vecs, _values, _from, _step)                                  \
    {                                                                                              \
        vec factor[(_vecs)*CT_PARTS(_b, _l)];                                                      \
                                                                                                   \
        CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) factor[v] =                   \
            *(const vec *)((_from) + CT_PART_AT(_b, _l, v, _step));                                \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                           \
                _add(acc[i][v], (_values)[i], factor[v]);                                          \
        }                                                                                          \
    }

#define LIST_OF(_add, _l, _name, _target, _b, _size, _vecs)                                        \
    _target static void _name##_list(const ct_blk_list *t)                                         \
    {                                                                                              \
        CT_VEC(_l);                                                                                \
        const float *w = t->weight;                                                                \
        vec acc[_size][(_vecs)*CT_PARTS(_b, _l)];                                                  \
                                                                                                   \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                           \
            {                                                                                      \
                if (t->start != NULL)                                                              \
                    acc[i][v] = *(const vec *)(t->start + v * (_l));                               \
                else                                                                               \
                    acc[i][v] =                                                                    \
                        *(const vec *)(t->y + i * t->y_step + CT_PART_AT(_b, _l, v, t->y_block));  \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < t->n; k++, w += (_vecs) * (_b)) {                                  \
            const float *x = t->x + t->off[k];                                                     \
                                                                                                   \
            ADD_TO(_add, _l, _b, _size, _vecs, x, w, _b)                                           \
        }                                                                                          \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) *                         \
                (vec *)(t->y + i * t->y_step + CT_PART_AT(_b, _l, v, t->y_block)) = acc[i][v];     \
        }                                                                                          \
    }

enum { AHEAD = 16 }; /* places that a gradient tile fetches ahead */

#define GRAD_OF(_add, _l, _name, _target, _b, _size, _vecs)                                        \
    _target static void _name##_grad(const ct_blk_grad *t)                                         \
    {                                                                                              \
        CT_VEC(_l);                                                                                \
        vec acc[_size][(_vecs)*CT_PARTS(_b, _l)];                                                  \
                                                                                                   \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) acc[i][v] =               \
                *(const vec *)(t->dw + i * ((_vecs) * (_b)) + v * (_l));                           \
        }                                                                                          \
        for (int64_t n = 0; n < t->images; n++) {                                                  \
            for (int64_t r = 0; r < t->rows; r++) {                                                \
                const float *x = t->x + n * t->x_image + r * t->x_row;                             \
                const float *dy = t->dy + n * t->dy_image + r * t->dy_row;                         \
                                                                                                   \
                for (int64_t j = 0; j < t->cols; j++, x += t->x_step, dy += (_b)) {                \
                    __builtin_prefetch(x + AHEAD * t->x_step);                                     \
                    CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++)                   \
                        __builtin_prefetch(dy + CT_PART_AT(_b, _l, v, t->dy_block) +               \
                                           AHEAD * (_b));                                          \
                    ADD_TO(_add, _l, _b, _size, _vecs, x, dy, t->dy_block)                         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        CT_UNROLL for (int i = 0; i < (_size); i++)                                                \
        {                                                                                          \
            CT_UNROLL for (int v = 0; v < (_vecs)*CT_PARTS(_b, _l); v++) *                         \
                (vec *)(t->dw + i * ((_vecs) * (_b)) + v * (_l)) = acc[i][v];                      \
        }                                                                                          \
    }

#define LIST(_name, _target, _b, _size, _vecs) LIST_OF(CT_ADD, _b, _name, _target, _b, _size, _vecs)
#define LIST_ANY(_name, _target, _b, _size, _vecs)                                                 \
    LIST_OF(CT_ADD, CT_SIMD_ANY_LANES, _name, _target, _b, _size, _vecs)
#define LIST_PAIR(_name, _target, _b, _size, _vecs)                                                \
    LIST_OF(CT_ADD_PAIR, _b, _name, _target, _b, _size, _vecs)
#define GRAD(_name, _target, _b, _size, _vecs) GRAD_OF(CT_ADD, _b, _name, _target, _b, _size, _vecs)
#define GRAD_ANY(_name, _target, _b, _size, _vecs)                                                 \
    GRAD_OF(CT_ADD, CT_SIMD_ANY_LANES, _name, _target, _b, _size, _vecs)
#define GRAD_PAIR(_name, _target, _b, _size, _vecs)                                                \
    GRAD_OF(CT_ADD_PAIR, _b, _name, _target, _b, _size, _vecs)

CT_TILES_ANY(LIST_ANY)
CT_TILES_X86(LIST)
CT_TILES_PAIR(LIST_PAIR)
CT_TILES_ANY(GRAD_ANY)
CT_TILES_X86(GRAD)
CT_TILES_PAIR(GRAD_PAIR)

const ct_blk_list_fn ct_blk_lists[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE(list);
const ct_blk_list_fn ct_blk_lists_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE_PAIR(list);
const ct_blk_grad_fn ct_blk_grads[CT_BLK_LEVELS][CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE(grad);
const ct_blk_grad_fn ct_blk_grads_pair[CT_BLK_MAX_VECS][CT_BLK_MAX_TILE] = CT_TABLE_PAIR(grad);
