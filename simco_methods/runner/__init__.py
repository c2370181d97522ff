"""What ``simco-pretrain`` is made of: the run's folder, its recorder, its trainer, its report."""
