#include "framework/base/hdf5_lock.h"

#include <hdf5.h>
#include <pthread.h>

/* The library it guards is one per process, so is the lock. */
static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;

static void lock_init(void)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
    /* at exit the library would try once more to write files that a full disk kept it from writing,
     * and crash; ours are closed by then */
    H5dont_atexit();
}

void ct_hdf5_lock(void)
{
    pthread_once(&lock_once, lock_init);
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* a thread-safe HDF5 keeps this per thread */
}

void ct_hdf5_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
