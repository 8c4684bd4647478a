#include "runtime/config/features.h"

#include <string.h>

#include "build_info.h"

#ifdef CT_HAVE_LMDB
#define LMDB true
#else
#define LMDB false
#endif
#ifdef CT_HAVE_TURBOJPEG
#define TURBOJPEG true
#else
#define TURBOJPEG false
#endif
#ifdef CT_HAVE_PNG
#define PNG true
#else
#define PNG false
#endif
#ifdef CT_HAVE_WEBP
#define WEBP true
#else
#define WEBP false
#endif
#ifdef CT_HAVE_TIFF
#define TIFF true
#else
#define TIFF false
#endif
#ifdef CT_HAVE_HWLOC
#define HWLOC true
#else
#define HWLOC false
#endif
#ifdef CT_HAVE_MICROHTTPD
#define MICROHTTPD true
#else
#define MICROHTTPD false
#endif
#ifdef CT_HAVE_CUDA
#define CUDA true
#else
#define CUDA false
#endif
#ifdef CT_HAVE_ONEDNN
#define ONEDNN true
#else
#define ONEDNN false
#endif

const ct_feature ct_feature_table[] = {
    { "lmdb", "Data layers with LMDB", LMDB },
    { "turbojpeg", "JPEG images", TURBOJPEG },
    { "png", "PNG images", PNG },
    { "webp", "WebP images", WEBP },
    { "tiff", "TIFF images", TIFF },
    { "hwloc", "the machine's layout", HWLOC },
    { "libmicrohttpd", "serving", MICROHTTPD },
    { "cuda", "solver_mode: GPU", CUDA },
    { "onednn", "one more convolution engine", ONEDNN },
    { NULL, NULL, false },
};

bool ct_feature_has(const char *name)
{
    for (const ct_feature *f = ct_feature_table; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) return f->built_in;
    }
    return false;
}

const char *ct_build_version(void)
{
    return CT_BUILD_VERSION;
}

const char *ct_build_compiler(void)
{
    return CT_BUILD_CC;
}

const char *ct_build_flags(void)
{
    return CT_BUILD_CFLAGS;
}
