"""kgem: knowledge graph embeddings whose regularisers tune themselves."""
