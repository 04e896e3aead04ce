"""What plans ask of ZooKeeper."""
