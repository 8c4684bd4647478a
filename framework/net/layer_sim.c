/* No layers in the simulator: it reads prototxts of machines, whose reader asks for types alone. */
#include "framework/proto/upgrade.h"

bool ct_layer_type_reads(const char *type, const char *field)
{
    (void)type, (void)field;
    return false;
}

const char *ct_layer_type_reading(const char *field, int k)
{
    (void)field, (void)k;
    return NULL;
}
