/* Which model a file is about, in 16 digits: names, types and shapes of the tensors that inference reads, and a few of their bytes. Reading
 * all bytes would take as long as loading; a model that was trained further differs in nearly every one of them. */
#include <string.h>

#include "model/model.h"

enum { SAMPLE = 64 }; /* bytes from the middle of each tensor */

typedef struct digest {
    const pi0_checkpoint *checkpoint;
    uint64_t hash;
} digest;

static int add_tensor(void *context, const pi0_tensor_spec *spec)
{
    digest *d = context;
    const pi0_tensor_view *view = spec->needed ? pi0_checkpoint_tensor(d->checkpoint, spec->name) : NULL;
    if (!view)
        return 0;
    uint64_t bytes = 0xcbf29ce484222325u; /* FNV-1a */
    const size_t count = view->bytes < SAMPLE ? view->bytes : SAMPLE, first = (view->bytes - count) / 2;
    for (size_t i = 0; i < count; i++)
        bytes = (bytes ^ ((const uint8_t *)view->data)[first + i]) * 0x100000001b3u;
    d->hash = pi0_mix64(d->hash ^ pi0_fnv1a(spec->name));
    d->hash = pi0_mix64(d->hash ^ pi0_fnv1a(pi0_dtype_name(view->dtype)));
    for (int i = 0; i < view->rank; i++)
        d->hash = pi0_mix64(d->hash ^ (uint64_t)view->shape[i]);
    d->hash = pi0_mix64(d->hash ^ bytes);
    return 0;
}

pi0_fingerprint pi0_checkpoint_fingerprint(const pi0_checkpoint *checkpoint)
{
    digest d = {checkpoint, 0};
    pi0_fingerprint out;
    pi0_arch_each_tensor(&checkpoint->arch, add_tensor, &d);
    snprintf(out.text, sizeof out.text, "%016llx", (unsigned long long)d.hash);
    return out;
}
