bunraku cert issue alice --role operator --out ./alice
