/* replay DIR: gives every file of a corpus to a fuzz target once, in the order of their names. It stands in for libFuzzer where the
 * compiler has none; a crash or a sanitizer's report is the failure. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    /* Exactly as large as the content: an overrun must not land in slack. */
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int bad = !data || size < 0 || fread(data, 1, (size_t)size, file) != (size_t)size;
    fclose(file);
    if (bad)
        fprintf(stderr, "%s: cannot be read\n", path);
    else
        LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return bad;
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int count = argc == 2 ? scandir(argv[1], &entries, NULL, alphasort) : -1;
    if (count < 0) {
        fprintf(stderr, "replay: no corpus: %s\n", argc == 2 ? argv[1] : "usage: replay DIR");
        return 2;
    }
    int bad = 0, replayed = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            bad += replay_file(path);
            replayed++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%d files replayed\n", replayed);
    return bad != 0 || replayed == 0;
}
