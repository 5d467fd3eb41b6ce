"""Code that tests share: small lakes, graphs, ledgers, crashes, faults and auditors."""
