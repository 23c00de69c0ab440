#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
# One launcher per host; without -n it starts a rank for each of the host's GPUs.
export TUTTI_SECRET=$(openssl rand -hex 32)
srun tutti run -- ./prog
