# Tokenizers: texts as ids, and back.
