include:
  - inc.empty
own:
  test.nop:
    - require:
      - sls: inc.empty
