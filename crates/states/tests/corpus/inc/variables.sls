"i {{ sls }} {{ slspath }} {{ slsdotpath }} {{ tpldir }} {{ tplfile }}": test.nop
