"""A tiny model of random weights, made in the environment of vLLM: its folder is the argument."""

MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
words = {word: number for number, word in enumerate(["<s>", "</s>", *letters])}
tokens = Tokenizer(models.BPE(vocab=words, merges=[]))
tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
torch.manual_seed(0)
shape = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
LlamaForCausalLM(LlamaConfig(vocab_size=320, max_position_embeddings=8192, **shape)).save_pretrained(sys.argv[1])
"""
