#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/synth.h"

/* A small tokenizer of the same kind as PaliGemma's: BPE over U+2581 for space, with a piece for every byte, runs of newlines and of
 * spaces, and merges for words that robots are told. Words that are not listed fall apart into letters, everything else into bytes. */

#define SPACE "\xe2\x96\x81"

enum { LONGEST_RUN = 31, MAX_PIECES = 4096 };

/* Instructions begin with these, so they are also pieces without the space before them. */
static const char VERBS[] =
    "pick open close place put take move push pull turn press lift lower grasp grab hold release drop insert remove stack "
    "unstack fold unfold wipe clean pour stir hand give bring reach slide rotate flip transfer wait go stop";

static const char WORDS[] =
    "the a of to in on from and into out up down left right over task state action "
    "red green blue yellow orange white black brown pink purple "
    "cube block bowl cup mug plate spoon fork knife bottle can box lid drawer door handle button knob switch table shelf basket tray bin "
    "towel cloth sponge tape pen cap peg hole gear cable plug socket screwdriver hammer tool toy ball apple banana carrot bread egg pan "
    "pot "
    "lamp book top bottom front back side middle first second then next it is this that with for until "
    "robot arm gripper wrist camera object small large big long short longest other both all one two three four slowly carefully gently";

static const char ENDINGS[] = "in er on re en at es or an ar ing ed le ly st ch sh th ou ea";

typedef struct builder {
    pi0_text vocabulary, merges; /* JSON: entries, with a comma before each but the first */
    pi0_text raw;                /* all pieces so far, each ended by a NUL */
    size_t offset[MAX_PIECES];   /* into raw */
    uint64_t hash[MAX_PIECES];   /* of the piece: nearly every comparison ends here */
    int pieces, n_merges;
} builder;

static void add_quoted(pi0_text *out, const char *a, const char *b)
{
    pi0_text_add_bytes(out, "\"", 1);
    for (const char *part = a; part; part = part == a ? b : NULL) {
        if (part == b)
            pi0_text_add_bytes(out, " ", 1);
        for (const char *p = part; *p; p++) {
            if (*p == '\n')
                pi0_text_add_bytes(out, "\\n", 2);
            else if (*p == '"' || *p == '\\')
                pi0_text_add(out, "\\%c", *p);
            else
                pi0_text_add_bytes(out, p, 1);
        }
    }
    pi0_text_add_bytes(out, "\"", 1);
}

/* Out of memory: "yes", so that nothing more is added. */
static bool has_piece(const builder *b, const char *piece)
{
    if (b->raw.failed)
        return true;
    uint64_t hash = pi0_fnv1a(piece);
    for (int i = 0; i < b->pieces; i++)
        if (b->hash[i] == hash && strcmp(b->raw.data + b->offset[i], piece) == 0)
            return true;
    return false;
}

static void add_piece(builder *b, const char *piece)
{
    if (b->pieces == MAX_PIECES || has_piece(b, piece))
        return;
    b->offset[b->pieces] = b->raw.length;
    b->hash[b->pieces] = pi0_fnv1a(piece);
    pi0_text_add_bytes(&b->raw, piece, strlen(piece) + 1);
    if (b->raw.failed)
        return;
    pi0_text_add(&b->vocabulary, "%s\n      ", b->pieces ? "," : "");
    add_quoted(&b->vocabulary, piece, NULL);
    pi0_text_add(&b->vocabulary, ": %d", b->pieces++);
}

static void add_merge(builder *b, const char *left, const char *right)
{
    pi0_text_add(&b->merges, "%s\n      ", b->n_merges++ ? "," : "");
    add_quoted(&b->merges, left, right);
}

static void repeat(char *out, const char *unit, int times)
{
    size_t n = strlen(unit);
    for (int i = 0; i < times; i++)
        memcpy(out + (size_t)i * n, unit, n);
    out[(size_t)times * n] = '\0';
}

/* Every way to put a run together, shortest first, so that any run up to the longest is one piece. */
static void merge_runs(builder *b, const char *unit)
{
    char left[4 * LONGEST_RUN], right[4 * LONGEST_RUN];
    for (int length = 2; length <= LONGEST_RUN; length++)
        for (int first = 1; first < length; first++) {
            repeat(left, unit, first);
            repeat(right, unit, length - first);
            add_merge(b, left, right);
        }
}

/* Grows `word` (with its leading space) from the left, one letter a merge; a merge that is there already is not repeated. */
static void add_word(builder *b, const char *word, size_t length, const char *start)
{
    char piece[64], grown[64], letter[2] = "";
    snprintf(piece, sizeof piece, "%s", start);
    for (size_t i = 0; i < length; i++) {
        letter[0] = word[i];
        if (!*piece) {
            snprintf(piece, sizeof piece, "%s", letter);
            continue;
        }
        snprintf(grown, sizeof grown, "%.50s%s", piece, letter);
        if (!has_piece(b, grown)) {
            add_piece(b, grown);
            add_merge(b, piece, letter);
        }
        memcpy(piece, grown, sizeof piece);
    }
}

static void add_words(builder *b, const char *words, const char *start)
{
    while (*words) {
        size_t length = strcspn(words, " ");
        add_word(b, words, length, start);
        words += length;
        words += strspn(words, " ");
    }
}

static void build(builder *b)
{
    static const char *const special[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    char text[4 * LONGEST_RUN];
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        add_piece(b, special[i]);
    for (int i = 1; i <= LONGEST_RUN; i++) {
        repeat(text, "\n", i);
        add_piece(b, text);
    }
    for (int i = 2; i <= LONGEST_RUN; i++) {
        repeat(text, SPACE, i);
        add_piece(b, text);
    }
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        add_piece(b, text);
    }
    add_piece(b, SPACE);
    for (int c = 33; c < 127; c++) {
        text[0] = (char)c;
        text[1] = '\0';
        add_piece(b, text);
    }
    merge_runs(b, "\n");
    merge_runs(b, SPACE);
    add_words(b, VERBS, SPACE);
    add_words(b, WORDS, SPACE);
    add_words(b, "Task State Action", "");
    add_words(b, VERBS, "");
    add_words(b, ENDINGS, "");
}

static void release(builder *b)
{
    if (!b)
        return;
    pi0_text_release(&b->vocabulary);
    pi0_text_release(&b->merges);
    pi0_text_release(&b->raw);
    pi0_free(b);
}

static builder *make(void)
{
    builder *b = pi0_alloc(sizeof *b);
    if (!b)
        return NULL;
    build(b);
    if (b->vocabulary.failed || b->merges.failed || b->raw.failed) {
        release(b);
        return NULL;
    }
    return b;
}

int pi0_synth_tokenizer_pieces(void)
{
    builder *b = make();
    int pieces = b ? b->pieces : 0;
    release(b);
    return pieces;
}

static void add_special(pi0_text *json, int id, const char *name)
{
    pi0_text_add(json,
                 "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                 "\"normalized\": false, \"special\": true}",
                 id ? "," : "", id, name);
}

pi0_status pi0_synth_write_tokenizer(const char *dir, pi0_error *err)
{
    pi0_text json = {0};
    builder *b = make();
    char *path = pi0_path_join(dir, "tokenizer.json");
    pi0_status status = PI0_OK;
    if (!b || !path) {
        status = pi0_fail_memory(err, sizeof *b, "the tokenizer");
        goto fail;
    }
    pi0_text_add(&json, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    const char *names[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    for (int i = 0; i < 4; i++)
        add_special(&json, i, names[i]);
    pi0_text_add(
        &json,
        "\n  ],\n"
        "  \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"},\n"
        "  \"pre_tokenizer\": null,\n"
        "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
        "    \"single\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
        "    \"pair\": [{\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},\n"
        "             {\"SpecialToken\": {\"id\": \"<bos>\", \"type_id\": 1}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
        "    \"special_tokens\": {\"<bos>\": {\"id\": \"<bos>\", \"ids\": [2], \"tokens\": [\"<bos>\"]}}},\n"
        "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [\n"
        "    {\"type\": \"Replace\", \"pattern\": {\"String\": \"" SPACE "\"}, \"content\": \" \"},\n"
        "    {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]},\n"
        "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\", \"continuing_subword_prefix\": null,\n"
        "    \"end_of_word_suffix\": null, \"fuse_unk\": true, \"byte_fallback\": true,\n    \"vocab\": {");
    pi0_text_add_bytes(&json, b->vocabulary.data, b->vocabulary.length);
    pi0_text_add(&json, "\n    },\n    \"merges\": [");
    pi0_text_add_bytes(&json, b->merges.data, b->merges.length);
    pi0_text_add(&json, "\n    ]\n  }\n}\n");
    status = json.failed ? pi0_fail_memory(err, json.length, "the tokenizer") : pi0_file_write(path, json.data, json.length, err);
fail:
    pi0_text_release(&json);
    pi0_free(path);
    release(b);
    return status;
}
