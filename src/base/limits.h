/* Every bound of the library, with its reason. A bound is checked where the number enters, before anything is allocated from it. */
#ifndef PI0_BASE_LIMITS_H
#define PI0_BASE_LIMITS_H

/* files */
#define PI0_MAX_SAFETENSORS_HEADER (100u << 20) /* the format's own cap in the reference reader */
#define PI0_MAX_TENSORS 65536                   /* the largest published file has 813; an index of shards stays far below */
#define PI0_MAX_SHARDS 1024
#define PI0_MAX_NAME 1024                /* tensor, key and array names */
#define PI0_MAX_JSON (16u << 20)         /* config, processors, statistics: kilobytes in practice */
#define PI0_MAX_TOKENIZER (256u << 20)   /* Gemma's tokenizer.json has 17 MB; a 262k vocabulary with merges 33 MB */
#define PI0_MAX_PIECES (1u << 20)        /* vocabulary entries */
#define PI0_MAX_PIECE 1024               /* bytes of one vocabulary entry */
#define PI0_MAX_ARRAY_BYTES (1ull << 32) /* one array of an npy/npz: a reference file holds megabytes */
#define PI0_MAX_ARRAYS 4096              /* members of an npz */

/* pictures */
#define PI0_MAX_IMAGE_SIDE 16384         /* above any robot camera; bounds the decoder's allocation with the next line */
#define PI0_MAX_IMAGE_PIXELS (64u << 20) /* 192 MB of RGB */

/* model */
#define PI0_MAX_CAMERAS 4    /* slots of one model: published ones have three */
#define PI0_MAX_TOKENS 1024  /* prompt; published limits are 48 and 200 */
#define PI0_MAX_HORIZON 4096 /* action rows; published 10 .. 50 */
#define PI0_MAX_STEPS 1000   /* flow-matching steps; published 10 */
#define PI0_MAX_DIM 256      /* state and action widths; published 32 */
#define PI0_MAX_LAYERS 128
#define PI0_MAX_WIDTH 65536        /* any hidden width */
#define PI0_MAX_BATCH 16           /* lanes */
#define PI0_MAX_PROMPT_BYTES 65536 /* instruction text */
#define PI0_MAX_THREADS 256
#define PI0_MAX_DEPTH 16 /* observations in a pipeline: each has a session with its pictures */

#endif
