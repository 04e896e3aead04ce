"""Operations on ZooKeeper."""
