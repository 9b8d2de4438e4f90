"""Writers: transactions that append log files of their own and are published in one step."""
