/* Private to the checkpoint files (names.c, locate.c, checkpoint_config.c, checkpoint.c) and to arch.c. */
#ifndef PI0_MODEL_CHECKPOINT_H
#define PI0_MODEL_CHECKPOINT_H

#include "model/model.h"

#define PI0_PALIGEMMA "paligemma_with_expert.paligemma."
#define PI0_VISION PI0_PALIGEMMA "model.vision_tower.vision_model."
#define PI0_PROJECTOR PI0_PALIGEMMA "model.multi_modal_projector.linear."
#define PI0_PREFIX PI0_PALIGEMMA "model.language_model."
#define PI0_EXPERT "paligemma_with_expert.gemma_expert.model."
#define PI0_LM_HEAD PI0_PALIGEMMA "lm_head.weight"
#define PI0_EMBED_TOKENS PI0_PREFIX "embed_tokens.weight"
#define PI0_EXPERT_HEAD "paligemma_with_expert.gemma_expert.lm_head.weight"

/* ------------------------------------------------------------------ names.c: naming dialects */

typedef struct pi0_name_entry {
    char *canonical;
    const pi0_tensor_view *tensor;
    bool used, needed; /* listed by the architecture; read by inference */
} pi0_name_entry;

struct pi0_name_map {
    pi0_name_entry *entries; /* sorted by canonical name */
    size_t count;
    /* what was seen on the way */
    bool model_prefix, old_names, flat_vision, compiled, statistics;
    bool table_is_embed_tokens; /* only embed_tokens is stored: lm_head's name leads to it */
    char words[160];            /* pi0_checkpoint.naming */
    json_t *warnings;           /* array of strings, for inspect */
};

/* out: at least size bytes; false when the name does not fit. `seen` may be NULL. */
bool pi0_name_canonical(const char *name, char *out, size_t size, struct pi0_name_map *seen);

/* The other way: a canonical name as LeRobot <= 0.3 spelled it, with its model. prefix. */
void pi0_name_old(const char *canonical, char *out, size_t size);

/* Buffers that some files carry and inference does not read: statistics inside the weights (the recipe reads them), rotary tables, ... */
bool pi0_name_ignorable(const char *canonical);

/* Two tensors that mean the same are an error that lists both. */
pi0_status pi0_name_map_open(const pi0_safetensors *file, struct pi0_name_map **out, pi0_error *err);
void pi0_name_map_close(struct pi0_name_map **names);
pi0_name_entry *pi0_name_map_find(const struct pi0_name_map *names, const char *canonical);
const pi0_tensor_view *pi0_name_map_tensor(const struct pi0_name_map *names, const char *canonical); /* follows the table's two names */
const pi0_name_entry *pi0_name_map_first(const struct pi0_name_map *names, const char *prefix);      /* any entry that starts so, or NULL */

/* ------------------------------------------------------------------ locate.c */

/* The folder of a repository "org/name" in the Hugging Face cache at hf_home. On failure *looked (may be NULL) says where it was sought;
 * both are freed with pi0_free. */
pi0_status pi0_hub_snapshot(const char *repository, const char *hf_home, char **dir, char **looked, pi0_error *err);
pi0_status pi0_refuse_adapter(const char *where, pi0_error *err); /* the error for PEFT and LoRA */

/* ------------------------------------------------------------------ arch.c */

/* Sizes from shapes. What no tensor tells stays 0 (and every shape made from it is unknown in that place); a size out of bounds or of an
 * impossible proportion is an error. */
pi0_status pi0_arch_read(const struct pi0_name_map *names, bool pi05, pi0_arch *out, pi0_error *err);

/* ------------------------------------------------------------------ checkpoint_config.c: config.json */

/* Which model a config.json says it is; refuses by name what this library does not run. */
typedef enum pi0_said { PI0_SAID_NOTHING, PI0_SAID_PI0, PI0_SAID_PI05 } pi0_said;

pi0_status pi0_config_check(const json_t *config, const char *where, const pi0_log *log, pi0_said *out, pi0_error *err);
pi0_status pi0_config_name_check(const char *config_name, pi0_said *out, pi0_error *err); /* options->config */
bool pi0_config_is_old(const json_t *config);                                             /* keys that only LeRobot <= 0.3 wrote */
/* A variant name or a width that disagrees with the tensors is only a warning: tensors win. */
void pi0_config_compare(const json_t *config, const pi0_arch *arch, const pi0_log *log, struct pi0_name_map *names);
void pi0_checkpoint_warn(struct pi0_name_map *names, const pi0_log *log, const char *text, ...) PI0_PRINTF(3, 4); /* names may be NULL */

#endif
