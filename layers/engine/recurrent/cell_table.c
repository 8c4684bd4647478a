#include "layers/engine/recurrent/cell.h"

const ct_cell_impl *const ct_cell_table[] = {
#ifdef CT_HAVE_CUDNN
    &ct_cell_cudnn, /* by name or plan */
#endif
    NULL,
};

const ct_cell_impl *ct_cell_named(const char *name)
{
    for (int i = 0; ct_cell_table[i] != NULL; i++) {
        if (strcmp(ct_cell_table[i]->name, name) == 0) return ct_cell_table[i];
    }
    return NULL;
}
