#include <stdio.h>
#include <string.h>

#include "model/checkpoint.h"

const char *pi0_layout_name(pi0_layout layout)
{
    static const char *const names[] = {
        [PI0_LAYOUT_OPENPI] = "openpi", [PI0_LAYOUT_LEROBOT] = "lerobot", [PI0_LAYOUT_LEROBOT_03] = "lerobot-0.3"};
    return names[layout];
}

static const char *model_name(bool pi05)
{
    return pi05 ? "pi05" : "pi0";
}

/* ------------------------------------------------------------------ shapes as text */

/* "[2048, ?]": an unknown extent is one that no tensor of the file tells */
static void print_shape(char *out, size_t size, const int64_t *shape, int rank)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < rank && used < size; i++) {
        if (shape[i] > 0)
            used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
        else
            used += (size_t)snprintf(out + used, size - used, "%s?", i ? ", " : "");
    }
    if (used < size)
        snprintf(out + used, size - used, "]");
}

static void print_tensor_shape(char *out, size_t size, const pi0_tensor_view *tensor)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < tensor->rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* ------------------------------------------------------------------ kinds of model that are refused by name */

static pi0_status refuse_by_tensor(pi0_checkpoint *checkpoint, const char *weights_file, pi0_error *err)
{
    static const char *const lora[] = {"lora_a", "lora_b", "lora_A", "lora_B", "lora_embedding_"};
    const struct pi0_name_map *names = checkpoint->names;
    pi0_status status = PI0_OK;
    for (size_t i = 0; i < names->count; i++)
        for (size_t j = 0; j < sizeof lora / sizeof lora[0]; j++)
            if (strstr(names->entries[i].canonical, lora[j])) {
                if (status == PI0_OK)
                    status = pi0_refuse_adapter(weights_file, err);
                pi0_err_item(err, "adapter tensor: %s", names->entries[i].tensor->name);
                break;
            }
    if (status != PI0_OK)
        return status;
    const pi0_name_entry *memory = pi0_name_map_first(names, "proprio_history_proj.");
    if (memory) {
        pi0_fail(err, PI0_ERR_UNSUPPORTED, "this is a MEM model (pi05 with memory), which this version does not run");
        pi0_err_where(err, "%s, tensor %s", weights_file, memory->tensor->name);
        pi0_err_hint(err, "use a pi05 checkpoint without memory");
        return PI0_ERR_UNSUPPORTED;
    }
    bool paligemma = pi0_name_map_first(names, PI0_PALIGEMMA) || pi0_name_map_first(names, "paligemma.");
    if (paligemma && !pi0_name_map_first(names, "paligemma_with_expert.gemma_expert.") && !pi0_name_map_first(names, "action_") &&
        !pi0_name_map_first(names, "time_mlp_") && !pi0_name_map_first(names, "state_proj.")) {
        pi0_fail(err, PI0_ERR_UNSUPPORTED,
                 "this is a pi0-FAST model (PaliGemma without an action expert), which this version does not run");
        pi0_err_where(err, "%s", weights_file);
        pi0_err_expected(err, "paligemma_with_expert.gemma_expert.*, action_in_proj.*, action_out_proj.*");
        pi0_err_hint(err, "use a pi0 or pi05 checkpoint of the same robot");
        return PI0_ERR_UNSUPPORTED;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ pi0 or pi05 */

static bool is_evidence(const char *canonical, bool pi05)
{
    static const char *const of_pi0[] = {"action_time_mlp_in.", "action_time_mlp_out.", "state_proj."};
    static const char *const of_pi05[] = {"time_mlp_in.", "time_mlp_out."};
    for (size_t i = 0; !pi05 && i < sizeof of_pi0 / sizeof of_pi0[0]; i++)
        if (strncmp(canonical, of_pi0[i], strlen(of_pi0[i])) == 0)
            return true;
    for (size_t i = 0; pi05 && i < sizeof of_pi05 / sizeof of_pi05[0]; i++)
        if (strncmp(canonical, of_pi05[i], strlen(of_pi05[i])) == 0)
            return true;
    return pi05 && strncmp(canonical, PI0_EXPERT, strlen(PI0_EXPERT)) == 0 && strstr(canonical, ".dense.");
}

static void list_evidence(const struct pi0_name_map *names, bool pi05, pi0_error *err)
{
    for (size_t i = 0; i < names->count; i++)
        if (is_evidence(names->entries[i].canonical, pi05))
            pi0_err_item(err, "of %s: %s", model_name(pi05), names->entries[i].tensor->name);
}

/* By tensors alone; config files only confirm. */
static pi0_status decide_model(const struct pi0_name_map *names, const char *weights_file, bool *pi05, pi0_error *err)
{
    bool seen[2] = {false, false};
    for (size_t i = 0; i < names->count; i++)
        for (int kind = 0; kind < 2; kind++)
            seen[kind] |= is_evidence(names->entries[i].canonical, kind);
    *pi05 = seen[1];
    if (seen[0] != seen[1])
        return PI0_OK;
    if (seen[0]) {
        pi0_fail(err, PI0_ERR_MODEL, "the file holds tensors of both pi0 and pi05");
        pi0_err_expected(err, "state_proj and action_time_mlp_* (pi0), or time_mlp_* and adaptive norms (pi05), not both");
        list_evidence(names, false, err);
        list_evidence(names, true, err);
    } else {
        pi0_fail(err, PI0_ERR_MODEL, "the tensors tell of neither pi0 nor pi05");
        pi0_err_expected(err, "state_proj and action_time_mlp_* (pi0), or time_mlp_* and adaptive norms (pi05)");
        pi0_err_got(err, "%zu tensors without any of these", names->count);
        pi0_err_hint(err, "is this the policy's own model.safetensors?");
        for (size_t i = 0; i < names->count && i < 8; i++)
            pi0_err_item(err, "in the file: %s", names->entries[i].tensor->name);
    }
    pi0_err_where(err, "%s", weights_file);
    return PI0_ERR_MODEL;
}

static pi0_status confirm_model(const struct pi0_name_map *names, bool pi05, pi0_said said, const char *who, const char *weights_file,
                                pi0_error *err)
{
    if (said == PI0_SAID_NOTHING || (said == PI0_SAID_PI05) == pi05)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_MODEL, "%s says %s, the tensors are those of %s", who, model_name(!pi05), model_name(pi05));
    pi0_err_where(err, "%s", weights_file);
    pi0_err_expected(err, "tensors of %s: %s", model_name(!pi05),
                     pi05 ? "state_proj, action_time_mlp_*" : "time_mlp_*, adaptive norms (.dense.)");
    pi0_err_got(err, "tensors of %s: %s", model_name(pi05),
                pi05 ? "time_mlp_*, adaptive norms (.dense.)" : "state_proj, action_time_mlp_*");
    pi0_err_hint(err, "put the files of one model together, or name a config of %s", model_name(pi05));
    list_evidence(names, pi05, err);
    return PI0_ERR_MODEL;
}

/* ------------------------------------------------------------------ every tensor */

typedef struct inspection {
    pi0_checkpoint *checkpoint;
    const char *weights_file;
    pi0_error *err;
    int missing, misshapen, mistyped, unexpected;
} inspection;

static void begin_list(inspection *i)
{
    if (i->missing + i->misshapen + i->mistyped + i->unexpected == 0)
        pi0_fail(i->err, PI0_ERR_MODEL, "the tensors are not those of the model");
}

static bool same_shape(const pi0_tensor_spec *spec, const pi0_tensor_view *tensor)
{
    bool same = spec->rank == tensor->rank;
    for (int i = 0; same && i < spec->rank; i++)
        same = spec->shape[i] == 0 || spec->shape[i] == tensor->shape[i];
    return same;
}

static void list_missing(inspection *i, const pi0_tensor_spec *spec)
{
    char shape[96];
    begin_list(i);
    i->missing++;
    print_shape(shape, sizeof shape, spec->shape, spec->rank);
    bool table = strcmp(spec->name, PI0_LM_HEAD) == 0;
    pi0_err_item(i->err, "missing: %s %s%s", spec->name, shape, table ? " (the token table; or " PI0_EMBED_TOKENS ")" : "");
}

static int inspect_tensor(void *context, const pi0_tensor_spec *spec)
{
    inspection *i = context;
    struct pi0_name_map *names = i->checkpoint->names;
    bool other_name = names->table_is_embed_tokens && strcmp(spec->name, PI0_LM_HEAD) == 0;
    pi0_name_entry *entry = pi0_name_map_find(names, other_name ? PI0_EMBED_TOKENS : spec->name);
    if (!entry) {
        if (spec->needed)
            list_missing(i, spec);
        return 0;
    }
    entry->used = true;
    entry->needed = spec->needed;
    if (!spec->needed)
        return 0; /* whatever it is, it cannot change an action */
    const pi0_tensor_view *tensor = entry->tensor;
    if (!same_shape(spec, tensor)) {
        char expected[96], got[256];
        begin_list(i);
        i->misshapen++;
        print_shape(expected, sizeof expected, spec->shape, spec->rank);
        print_tensor_shape(got, sizeof got, tensor);
        pi0_err_item(i->err, "shape: %s expected %s got %s", tensor->name, expected, got);
    }
    if (tensor->dtype != PI0_F32 && tensor->dtype != PI0_BF16 && tensor->dtype != PI0_F16) {
        begin_list(i);
        i->mistyped++;
        pi0_err_item(i->err, "type: %s expected f32, bf16 or f16 got %s", tensor->name, pi0_dtype_name(tensor->dtype));
    }
    return 0;
}

static void inspect_depths(inspection *i)
{
    const pi0_arch *arch = &i->checkpoint->arch;
    const char *stems[] = {PI0_VISION "encoder.", PI0_PREFIX, PI0_EXPERT};
    int depths[] = {arch->vision.depth, arch->prefix.depth, arch->expert.depth};
    for (int j = 0; j < 3; j++)
        if (depths[j] == 0) {
            begin_list(i);
            i->missing++;
            pi0_err_item(i->err, "missing: %slayers.0.* (no layer at all)", stems[j]);
        }
}

static pi0_status check_tensors(pi0_checkpoint *checkpoint, const char *weights_file, pi0_error *err)
{
    inspection i = {.checkpoint = checkpoint, .weights_file = weights_file, .err = err};
    struct pi0_name_map *names = checkpoint->names;
    inspect_depths(&i);
    pi0_arch_each_tensor(&checkpoint->arch, inspect_tensor, &i);
    for (size_t j = 0; j < names->count; j++) {
        const pi0_name_entry *entry = &names->entries[j];
        if (entry->used || pi0_name_ignorable(entry->canonical))
            continue;
        char shape[256];
        begin_list(&i);
        i.unexpected++;
        print_tensor_shape(shape, sizeof shape, entry->tensor);
        pi0_err_item(err, "unexpected: %s %s", entry->tensor->name, shape);
    }
    if (i.missing + i.misshapen + i.mistyped + i.unexpected == 0)
        return PI0_OK;
    pi0_err_where(err, "%s", weights_file);
    pi0_err_expected(err, "every tensor of %s with its exact shape, and no other", model_name(checkpoint->arch.pi05));
    pi0_err_got(err, "%d missing, %d of another shape, %d of another type, %d unexpected", i.missing, i.misshapen, i.mistyped,
                i.unexpected);
    pi0_err_hint(err,
                 i.unexpected
                     ? "is it a checkpoint of another model, or of one that was changed? `pi0 inspect --tensors` lists what a file holds"
                     : "the file is incomplete or was changed: download or save it again");
    return PI0_ERR_MODEL;
}

/* ------------------------------------------------------------------ opening */

static pi0_status read_config(pi0_checkpoint *checkpoint, const pi0_log *log, pi0_said *said, pi0_error *err)
{
    *said = PI0_SAID_NOTHING;
    if (!checkpoint->dir)
        return PI0_OK;
    char *path = pi0_path_join(checkpoint->dir, "config.json");
    if (!path)
        return pi0_fail_memory(err, strlen(checkpoint->dir), "a path");
    pi0_status status = PI0_OK;
    if (pi0_exists(path)) {
        status = pi0_json_read(path, PI0_MAX_JSON, &checkpoint->config, err);
        if (status == PI0_OK)
            status = pi0_config_check(checkpoint->config, path, log, said, err);
    }
    pi0_free(path);
    return status;
}

static pi0_status decide_layout(pi0_checkpoint *checkpoint, bool typed, const pi0_log *log, pi0_error *err)
{
    struct pi0_name_map *names = checkpoint->names;
    char *path = pi0_path_join(checkpoint->dir, "policy_preprocessor.json");
    if (!path)
        return pi0_fail_memory(err, strlen(checkpoint->dir), "a path");
    bool processors = pi0_exists(path), old = names->old_names || names->statistics || pi0_config_is_old(checkpoint->config);
    pi0_free(path);
    if (typed && (processors || !old))
        checkpoint->layout = PI0_LAYOUT_LEROBOT;
    else
        checkpoint->layout = old && !processors ? PI0_LAYOUT_LEROBOT_03 : PI0_LAYOUT_OPENPI;
    if (processors && names->statistics)
        pi0_checkpoint_warn(names, log,
                            "statistics are both inside the weights and in policy_preprocessor.json: the processor files are followed");
    if (checkpoint->layout == PI0_LAYOUT_LEROBOT_03)
        pi0_log_info(log, "legacy checkpoint: LeRobot 0.3 or older%s", names->statistics ? ", statistics inside the weights" : "");
    return PI0_OK;
}

/* Of a packed file under any name: nothing beside it is looked at. */
static pi0_status recognise_packed(pi0_checkpoint *checkpoint, const char *weights_file, pi0_error *err)
{
    pi0_packed_facts facts;
    if (!pi0_packed_is(checkpoint->file)) {
        if (checkpoint->dir)
            return PI0_OK;
        pi0_fail(err, PI0_ERR_FORMAT, "this .pi0 file was not written by `pi0 pack`");
        pi0_err_where(err, "%s: \"__metadata__\"", weights_file);
        pi0_err_expected(err, "\"" PI0_PACKED_VERSION_KEY "\": the version of the packed file");
        pi0_err_hint(err, "weights alone have the ending .safetensors, and their recipe beside them");
        return PI0_ERR_FORMAT;
    }
    PI0_TRY(pi0_packed_check(checkpoint->file, weights_file, &facts, err));
    pi0_free(checkpoint->dir);
    checkpoint->dir = NULL;
    checkpoint->packed = true;
    checkpoint->packed_for = facts.precision;
    checkpoint->layout = facts.layout;
    return PI0_OK;
}

static pi0_status open_weights(pi0_checkpoint *checkpoint, const pi0_options *options, const char *weights_file, pi0_said said,
                               const pi0_log *log, pi0_error *err)
{
    pi0_said named = PI0_SAID_NOTHING;
    bool pi05 = false;
    PI0_TRY(pi0_config_name_check(options ? options->config : NULL, &named, err));
    PI0_TRY(pi0_name_map_open(checkpoint->file, &checkpoint->names, err));
    checkpoint->naming = checkpoint->names->words;
    PI0_TRY(refuse_by_tensor(checkpoint, weights_file, err));
    PI0_TRY(decide_model(checkpoint->names, weights_file, &pi05, err));
    PI0_TRY(confirm_model(checkpoint->names, pi05, said, "config.json", weights_file, err));
    PI0_TRY(confirm_model(checkpoint->names, pi05, named, "the config named", weights_file, err));
    PI0_TRY(pi0_arch_read(checkpoint->names, pi05, &checkpoint->arch, err));
    PI0_TRY(check_tensors(checkpoint, weights_file, err));
    if (!checkpoint->packed)
        PI0_TRY(decide_layout(checkpoint, said != PI0_SAID_NOTHING, log, err));
    pi0_config_compare(checkpoint->config, &checkpoint->arch, log, checkpoint->names);
    return PI0_OK;
}

pi0_status pi0_checkpoint_open(const char *path, const pi0_options *options, const pi0_log *log, pi0_checkpoint **out, pi0_error *err)
{
    pi0_status status = PI0_OK;
    char *weights_file = NULL;
    pi0_said said = PI0_SAID_NOTHING;
    *out = NULL;
    pi0_checkpoint *checkpoint = pi0_alloc(sizeof *checkpoint);
    if (!checkpoint)
        return pi0_fail_memory(err, sizeof *checkpoint, "the checkpoint");
    PI0_TRY_GOTO(pi0_checkpoint_locate(path, options, &checkpoint->dir, &weights_file, err));
    checkpoint->path = pi0_strdup(pi0_is_file(path) || !checkpoint->dir ? weights_file : checkpoint->dir);
    if (!checkpoint->path) {
        status = pi0_fail_memory(err, strlen(weights_file), "a path");
        goto fail;
    }
    PI0_TRY_GOTO(pi0_safetensors_open(weights_file, &checkpoint->file, err));
    PI0_TRY_GOTO(recognise_packed(checkpoint, weights_file, err));
    PI0_TRY_GOTO(read_config(checkpoint, log, &said, err));
    PI0_TRY_GOTO(open_weights(checkpoint, options, weights_file, said, log, err));
    pi0_free(weights_file);
    *out = checkpoint;
    return PI0_OK;
fail:
    pi0_free(weights_file);
    pi0_checkpoint_close(&checkpoint);
    return status;
}

void pi0_checkpoint_close(pi0_checkpoint **checkpoint)
{
    if (!checkpoint || !*checkpoint)
        return;
    pi0_name_map_close(&(*checkpoint)->names);
    pi0_safetensors_close(&(*checkpoint)->file);
    json_decref((*checkpoint)->config);
    pi0_free((*checkpoint)->path);
    pi0_free((*checkpoint)->dir);
    pi0_free(*checkpoint);
    *checkpoint = NULL;
}

const pi0_tensor_view *pi0_checkpoint_tensor(const pi0_checkpoint *checkpoint, const char *canonical)
{
    return pi0_name_map_tensor(checkpoint->names, canonical);
}

int pi0_checkpoint_each_needed(const pi0_checkpoint *checkpoint,
                               int (*fn)(void *context, const char *canonical, const pi0_tensor_view *tensor), void *context)
{
    int stop = 0;
    for (size_t i = 0; i < checkpoint->names->count && !stop; i++) {
        const pi0_name_entry *entry = &checkpoint->names->entries[i];
        if (entry->needed)
            stop = fn(context, entry->canonical, entry->tensor);
    }
    return stop;
}

/* ------------------------------------------------------------------ for inspect */

static json_t *describe_gemma(const pi0_gemma_arch *g)
{
    return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "width", g->width, "depth", g->depth, "mlp", g->mlp, "heads", g->heads, "kv_heads",
                     g->kv_heads, "head_dim", g->head_dim);
}

static json_t *describe_arch(const pi0_arch *arch)
{
    json_t *vision =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "width", arch->vision.width, "depth", arch->vision.depth, "mlp", arch->vision.mlp,
                  "heads", arch->vision.heads, "patch", arch->vision.patch, "side", arch->vision.side, "tokens", arch->vision.tokens);
    return json_pack("{s:o,s:o,s:o,s:i,s:i,s:I,s:I}", "vision", vision, "prefix", describe_gemma(&arch->prefix), "expert",
                     describe_gemma(&arch->expert), "vocab", arch->vocab, "action_dim", arch->action_dim, "parameters",
                     (json_int_t)pi0_arch_parameters(arch, false), "parameters_needed", (json_int_t)pi0_arch_parameters(arch, true));
}

/* How each block is stored; a block of several types names them all. */
static json_t *describe_stored(const struct pi0_name_map *names)
{
    static const struct {
        const char *block, *prefix;
    } blocks[] = {{"vision", PI0_VISION},
                  {"projector", PI0_PROJECTOR},
                  {"token_table", PI0_LM_HEAD},
                  {"token_table", PI0_EMBED_TOKENS},
                  {"prefix", PI0_PREFIX "layers."},
                  {"expert", PI0_EXPERT "layers."},
                  {"expert_norm", PI0_EXPERT "norm."},
                  {"projections", "action_"},
                  {"projections", "time_mlp_"},
                  {"projections", "state_proj."}};
    json_t *out = json_object();
    for (size_t i = 0; out && i < names->count; i++) {
        const pi0_name_entry *entry = &names->entries[i];
        for (size_t j = 0; entry->needed && j < sizeof blocks / sizeof blocks[0]; j++) {
            if (strncmp(entry->canonical, blocks[j].prefix, strlen(blocks[j].prefix)) != 0)
                continue;
            const char *type = pi0_dtype_name(entry->tensor->dtype), *had = json_string_value(json_object_get(out, blocks[j].block));
            if (had && strstr(had, type))
                continue;
            json_object_set_new(out, blocks[j].block, had ? json_sprintf("%s + %s", had, type) : json_string(type));
        }
    }
    return out;
}

static json_t *describe_tensors(const struct pi0_name_map *names)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < names->count; i++) {
        const pi0_name_entry *entry = &names->entries[i];
        const pi0_tensor_view *tensor = entry->tensor;
        json_t *shape = json_array();
        for (int j = 0; shape && j < tensor->rank; j++)
            json_array_append_new(shape, json_integer(tensor->shape[j]));
        json_t *one = json_pack("{s:s,s:s,s:s,s:o,s:I,s:i,s:b}", "name", entry->canonical, "name_in_file", tensor->name, "dtype",
                                pi0_dtype_name(tensor->dtype), "shape", shape, "bytes", (json_int_t)tensor->bytes, "file", tensor->shard,
                                "needed", (int)entry->needed);
        if (!one || json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *pi0_checkpoint_describe(const pi0_checkpoint *checkpoint, bool tensors)
{
    const pi0_safetensors *file = checkpoint->file;
    json_t *files = json_array();
    for (size_t i = 0; files && i < pi0_safetensors_shards(file); i++)
        json_array_append_new(files, pi0_json_words(pi0_safetensors_shard_path(file, i)));
    json_t *dir = checkpoint->dir ? pi0_json_words(checkpoint->dir) : json_null();
    json_t *out =
        json_pack("{s:o,s:o,s:s,s:s,s:s,s:o,s:I,s:I,s:s,s:b,s:o,s:o,s:O}", "path", pi0_json_words(checkpoint->path), "dir", dir, "model",
                  model_name(checkpoint->arch.pi05), "layout", pi0_layout_name(checkpoint->layout), "naming", checkpoint->naming, "files",
                  files, "tensors_in_file", (json_int_t)pi0_safetensors_count(file), "bytes", (json_int_t)pi0_safetensors_data_bytes(file),
                  "token_table", checkpoint->arch.untied || checkpoint->names->table_is_embed_tokens ? "embed_tokens" : "lm_head", "untied",
                  (int)checkpoint->arch.untied, "arch", describe_arch(&checkpoint->arch), "stored", describe_stored(checkpoint->names),
                  "warnings", checkpoint->names->warnings);
    if (out && checkpoint->packed && json_object_set_new(out, "packed", pi0_packed_describe(file)) != 0) {
        json_decref(out);
        return NULL;
    }
    if (out && tensors && json_object_set_new(out, "tensors", describe_tensors(checkpoint->names)) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}
