"""The benchmark `shards`: the cost of an order by the number of masters, and a model of throughput that cells check."""
