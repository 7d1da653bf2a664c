BEGIN TRANSACTION;
CREATE TABLE durations (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  sketch TEXT NOT NULL,
  PRIMARY KEY (tenant, kind)
) WITHOUT ROWID;
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant TEXT NOT NULL,
  job_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at REAL NOT NULL,
  job TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,'-','01JGGVSGVQHE8CZVJ99QHM93XW','status',1.73573280653893661498e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732806.5194113}');
INSERT INTO "events" VALUES(2,'-','01JGGVSGVQHE8CZVJ99QHM93XW','status',1.73573280653893661498e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.01952528953552246}');
INSERT INTO "events" VALUES(3,'-','01JGGVSGWSEYS8HJSTRB3YYZE5','status',1.73573280655395269398e+09,'{"kind":"half","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732806.5530314}');
INSERT INTO "events" VALUES(4,'-','01JGGVSGWSEYS8HJSTRB3YYZE5','status',1.73573280655395269398e+09,'{"kind":"half","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.0009212493896484375}');
INSERT INTO "events" VALUES(5,'-','01JGGVSGXFR3P0ZT1E3TF3YSXM','status',1.73573280660326147075e+09,'{"kind":"paint","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732806.575765}');
INSERT INTO "events" VALUES(6,'-','01JGGVSGZVT5X13846R0QPGZ09','status',1.73573280666294145588e+09,'{"kind":"fail","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732806.6517124}');
INSERT INTO "events" VALUES(7,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','status',1.73573280670750594136e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":1735732806.7071908}');
INSERT INTO "events" VALUES(8,'-','01JGGVSGVQHE8CZVJ99QHM93XW','step',1.73573280688028597834e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(9,'-','01JGGVSGVQHE8CZVJ99QHM93XW','step',1.73573280688028597834e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(10,'-','01JGGVSGVQHE8CZVJ99QHM93XW','step',1.73573280689279174802e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(11,'-','01JGGVSGVQHE8CZVJ99QHM93XW','step',1.73573280689279174802e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(12,'-','01JGGVSGVQHE8CZVJ99QHM93XW','status',1.73573280690441107752e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"seconds":0.3654744625091553}');
INSERT INTO "events" VALUES(13,'-','01JGGVSGXFR3P0ZT1E3TF3YSXM','status',1.73573280690441107752e+09,'{"kind":"paint","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.328646183013916}');
INSERT INTO "events" VALUES(14,'-','01JGGVSGWSEYS8HJSTRB3YYZE5','status',1.73573280704242634774e+09,'{"kind":"half","queue":"default","status":"PARTIAL_SUCCESS","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ffa52aba654f7ac1ec8aad1df25c412d","errors":[{"code":"MISSING","message":"the other half"}]},"seconds":0.48847365379333496}');
INSERT INTO "events" VALUES(15,'-','01JGGVSGZVT5X13846R0QPGZ09','status',1.73573280709938979147e+09,'{"kind":"fail","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.4476773738861084}');
INSERT INTO "events" VALUES(16,'-','01JGGVSGXFR3P0ZT1E3TF3YSXM','status',1.73573280709938979147e+09,'{"kind":"paint","queue":"default","status":"DONE","version":3,"run":1,"attempt":1,"fence":1,"seconds":0.1949787139892578}');
INSERT INTO "events" VALUES(17,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','status',1.73573280709938979147e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:31802","waited":0.3921990394592285}');
INSERT INTO "events" VALUES(18,'-','01JGGVSGZVT5X13846R0QPGZ09','status',1.73573280713322043418e+09,'{"kind":"fail","queue":"default","status":"ERROR","version":3,"run":1,"attempt":1,"fence":1,"error":{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"5c77cdd7a2c221c0a9dcc8fa242c171d"},"seconds":0.03383064270019531}');
INSERT INTO "events" VALUES(19,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','step',1.73573280713322043418e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:31802","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(20,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','step',1.73573280713322043418e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:31802","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(21,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','step',1.7357328071430821419e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:31802","step":{"name":"second","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(22,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','step',1.7357328071430821419e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":6,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"worker":"host:31802","step":{"name":"second","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(23,'-','01JGGVSH1K7WZ3P7AY9JCKX9J8','status',1.73573280715639066693e+09,'{"kind":"work","queue":"default","status":"DONE","version":7,"run":1,"attempt":1,"fence":1,"labels":{"of":"ann"},"seconds":0.05700087547302246}');
INSERT INTO "events" VALUES(24,'-','01JGGVSHHQ0V9CKFNR0WVNTDVK','status',1.7357328072241325379e+09,'{"kind":"heal","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732807.2238297}');
INSERT INTO "events" VALUES(25,'-','01JGGVSHHQ0V9CKFNR0WVNTDVK','status',1.7357328072241325379e+09,'{"kind":"heal","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.0003027915954589844}');
INSERT INTO "events" VALUES(26,'-','01JGGVSHHQ0V9CKFNR0WVNTDVK','status',1.73573280722706913947e+09,'{"kind":"heal","queue":"default","status":"RETRYING","version":3,"run":1,"attempt":1,"fence":1,"due":1735732943.563141,"nextAttemptAt":1735732943.563141,"error":{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"405e6fe279fb8244f528c609dba6576e"}}');
INSERT INTO "events" VALUES(27,'-','01JGGVSHK81E07S0SHME13ZHA6','status',1.73573280727731132509e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(28,'-','01JGGVSHMK332TD1JY0VBDD00M','status',1.73573280731532883641e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"due":4102444800.0}');
INSERT INTO "events" VALUES(29,'-','01JGGVSHMK332TD1JY0VBDD00M','status',1.73573280732186126708e+09,'{"kind":"work","queue":"default","status":"CANCELLED","version":2,"run":1,"attempt":0,"fence":0,"labels":{"of":"ann"},"cancelAsked":true}');
INSERT INTO "events" VALUES(30,'-','','queue',1.73573280734469890598e+09,'{"queue":"other","paused":true}');
INSERT INTO "events" VALUES(31,'-','01JGGVSHNW3RQY0DM9XXWS0C0C','status',1.7357328073631412983e+09,'{"kind":"rest","queue":"other","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732807.35663}');
INSERT INTO "events" VALUES(32,'-','01JGGVSHPSAFAC3Y8FTS0CP364','status',1.73573280738714241983e+09,'{"kind":"family","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732807.385054}');
INSERT INTO "events" VALUES(33,'-','01JGGVSHPSAFAC3Y8FTS0CP364','status',1.73573280738714241983e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.002088308334350586}');
INSERT INTO "events" VALUES(34,'-','01JGGVSHQ0SGJB0GCGV66T07B8','status',1.73573280773511886597e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732807.4507823}');
INSERT INTO "events" VALUES(35,'-','01JGGVSHPSAFAC3Y8FTS0CP364','status',1.73573280773511886597e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:31802"}');
INSERT INTO "events" VALUES(36,'-','01JGGVSHQ0SGJB0GCGV66T07B8','status',1.73573280773511886597e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.28433656692504883}');
INSERT INTO "events" VALUES(37,'-','01JGGVSHQ04TG3HX78C1B8YXDZ','status',1.735732807886077404e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732807.8824046}');
INSERT INTO "events" VALUES(38,'-','01JGGVSHPSAFAC3Y8FTS0CP364','status',1.735732807886077404e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:31802"}');
INSERT INTO "events" VALUES(39,'-','01JGGVSHQ0SGJB0GCGV66T07B8','step',1.73573280794784712789e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(40,'-','01JGGVSHQ0SGJB0GCGV66T07B8','step',1.73573280794784712789e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(41,'-','01JGGVSHPSAFAC3Y8FTS0CP364','status',1.73573280794784712789e+09,'{"kind":"family","queue":"default","status":"PROCESSING","version":5,"run":1,"attempt":1,"fence":1,"parked":true}');
INSERT INTO "events" VALUES(42,'-','01JGGVSHQ04TG3HX78C1B8YXDZ','status',1.73573280794784712789e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":2,"run":1,"attempt":1,"fence":1,"worker":"host:31802","waited":0.06544256210327148}');
INSERT INTO "events" VALUES(43,'-','01JGGVSHQ04TG3HX78C1B8YXDZ','step',1.73573280809504532813e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":3,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"PROCESSING"}}');
INSERT INTO "events" VALUES(44,'-','01JGGVSHQ04TG3HX78C1B8YXDZ','step',1.73573280809504532813e+09,'{"kind":"work","queue":"default","status":"PROCESSING","version":4,"run":1,"attempt":1,"fence":1,"worker":"host:31802","step":{"name":"first","status":"DONE"},"seconds":0.0}');
INSERT INTO "events" VALUES(45,'-','01JGGVSJHVXX87EGQ3N1N5863Y','status',1.73573280825304341323e+09,'{"kind":"work","queue":"default","status":"PENDING","version":1,"run":1,"attempt":0,"fence":0,"labels":{},"due":1735732808.251306}');
CREATE TABLE inputs (
  job_id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  input TEXT NOT NULL,
  files TEXT
, search TEXT) WITHOUT ROWID;
INSERT INTO "inputs" VALUES('01JGGVSGVQHE8CZVJ99QHM93XW','-','{"number": 1}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSGWSEYS8HJSTRB3YYZE5','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSGXFR3P0ZT1E3TF3YSXM','-','{"size": 10}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSGZVT5X13846R0QPGZ09','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSH1K7WZ3P7AY9JCKX9J8','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHHQ0V9CKFNR0WVNTDVK','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHK81E07S0SHME13ZHA6','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHMK332TD1JY0VBDD00M','-','{"number": 2}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHNW3RQY0DM9XXWS0C0C','-','{}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHPSAFAC3Y8FTS0CP364','-','{"number": 10, "seconds": 60}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHQ04TG3HX78C1B8YXDZ','-','{"number":11,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSHQ0SGJB0GCGV66T07B8','-','{"number":10,"seconds":60.0}',NULL,NULL);
INSERT INTO "inputs" VALUES('01JGGVSJHVXX87EGQ3N1N5863Y','-','{"number": 3}',NULL,NULL);
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  version INTEGER NOT NULL,
  run INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  labels TEXT,
  run_at REAL,
  due REAL,
  deadline REAL,
  attempt INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  losses INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  owner TEXT,
  lease_until REAL,
  started_at REAL,
  next_attempt_at REAL,
  cancel_asked_at REAL,
  finished_at REAL,
  keep REAL,
  expires_at REAL,
  result TEXT,
  result_file TEXT,
  error TEXT,
  progress TEXT,
  steps TEXT,
  files TEXT,
  parent TEXT,
  children TEXT,
  waiting_for TEXT,
  trace_id TEXT,
  -- 1: due and waiting for a worker; claims read only these rows
  ready INTEGER NOT NULL DEFAULT 0
, lease_seconds REAL, loss_record TEXT, overdue_at REAL, webhook TEXT, concurrency_key TEXT);
INSERT INTO "jobs" VALUES(1,'01JGGVSGVQHE8CZVJ99QHM93XW','work','default',1.73573280651941132552e+09,1.73573280690441107752e+09,'-','DONE',7,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280653893661498e+09,NULL,NULL,1.73573280690441107752e+09,NULL,NULL,'1',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732806.880286,"finished_at":1735732806.880286},{"name":"second","status":"DONE","started_at":1735732806.8927917,"finished_at":1735732806.8927917}]',NULL,NULL,NULL,NULL,'9064a527661ee7262cfc896c6a133c50',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'01JGGVSGWSEYS8HJSTRB3YYZE5','half','default',1.73573280655303144454e+09,1.73573280704242634774e+09,'-','PARTIAL_SUCCESS',3,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280655395269398e+09,NULL,NULL,1.73573280704242634774e+09,NULL,NULL,'{"done":1}',NULL,'{"code":"PARTIAL_SUCCESS","message":"1 part failed","retryable":false,"failedStep":null,"attempt":1,"traceId":"ffa52aba654f7ac1ec8aad1df25c412d","errors":[{"code":"MISSING","message":"the other half"}]}',NULL,NULL,NULL,NULL,NULL,NULL,'ffa52aba654f7ac1ec8aad1df25c412d',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'01JGGVSGXFR3P0ZT1E3TF3YSXM','paint','default',1.73573280657576489447e+09,1.73573280709938979147e+09,'-','DONE',3,1,0,NULL,NULL,NULL,NULL,1,101,0,0,1,NULL,NULL,1.73573280690441107752e+09,NULL,NULL,1.73573280709938979147e+09,NULL,NULL,'10',NULL,NULL,NULL,NULL,'[{"name":"picture.bin","content_type":"application/octet-stream","size":10,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","blob":"01JGGVSGXFR3P0ZT1E3TF3YSXM/1.1e077761/picture.bin"}]',NULL,NULL,NULL,'f4e44ddd814912a33b5e8215b9242ce5',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'01JGGVSGZVT5X13846R0QPGZ09','fail','default',1.73573280665171241756e+09,1.73573280713322043418e+09,'-','ERROR',3,1,0,NULL,NULL,NULL,NULL,1,1,1,0,1,NULL,NULL,1.73573280709938979147e+09,NULL,NULL,1.73573280713322043418e+09,NULL,NULL,NULL,NULL,'{"code":"BROKEN","message":"on purpose","retryable":false,"failedStep":null,"attempt":1,"traceId":"5c77cdd7a2c221c0a9dcc8fa242c171d"}',NULL,NULL,NULL,NULL,NULL,NULL,'5c77cdd7a2c221c0a9dcc8fa242c171d',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(5,'01JGGVSH1K7WZ3P7AY9JCKX9J8','work','default',1.73573280670719075208e+09,1.73573280715639066693e+09,'-','DONE',7,1,0,'{"of":"ann"}',NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280709938979147e+09,NULL,NULL,1.73573280715639066693e+09,NULL,NULL,'2',NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732807.1332204,"finished_at":1735732807.1332204},{"name":"second","status":"DONE","started_at":1735732807.1430821,"finished_at":1735732807.1430821}]',NULL,NULL,NULL,NULL,'c29c379515eb9ba713882f558e407c0a',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(6,'01JGGVSHHQ0V9CKFNR0WVNTDVK','heal','default',1.73573280722382974625e+09,1.73573280722706913947e+09,'-','RETRYING',3,1,0,NULL,NULL,1.73573294356314110752e+09,NULL,1,2,1,0,1,NULL,NULL,1.7357328072241325379e+09,1.73573294356314110752e+09,NULL,NULL,NULL,NULL,NULL,NULL,'{"code":"NOT_YET","message":"try again later","retryable":true,"failedStep":null,"attempt":1,"traceId":"405e6fe279fb8244f528c609dba6576e"}',NULL,NULL,NULL,NULL,NULL,NULL,'405e6fe279fb8244f528c609dba6576e',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(7,'01JGGVSHK81E07S0SHME13ZHA6','work','default',1.735732807272613287e+09,1.735732807272613287e+09,'-','PENDING',1,1,0,'{"of":"ann"}',4102444800.0,4102444800.0,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'37a5f66a7dee3842f17f441af2b06969',0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(8,'01JGGVSHMK332TD1JY0VBDD00M','work','default',1.73573280731506133078e+09,1.73573280732186126708e+09,'-','CANCELLED',2,1,0,'{"of":"ann"}',4102444800.0,NULL,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,1.73573280732186126708e+09,1.73573280732186126708e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'f36666f71e50b6bfe447a3427ce978d9',0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(9,'01JGGVSHNW3RQY0DM9XXWS0C0C','rest','other',1735732807.35663,1735732807.35663,'-','PENDING',1,1,0,NULL,NULL,1735732807.35663,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'5419d09902652e4ad0385152d77bc7a1',1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(10,'01JGGVSHPSAFAC3Y8FTS0CP364','family','default',1.73573280738505411145e+09,1.73573280794784712789e+09,'-','PROCESSING',5,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,NULL,NULL,1.73573280738714241983e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"job_id":"01JGGVSHQ0SGJB0GCGV66T07B8","kind":"work","key":"work#1","status":null},{"job_id":"01JGGVSHQ04TG3HX78C1B8YXDZ","kind":"work","key":"work#2","status":null}]','["01JGGVSHQ0SGJB0GCGV66T07B8","01JGGVSHQ04TG3HX78C1B8YXDZ"]','603783e2a6a625970a6e6d1c158cfdc5',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(11,'01JGGVSHQ0SGJB0GCGV66T07B8','work','default',1.73573280745078229901e+09,1.73573280794784712789e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:31802',1.73573283773511886592e+09,1.73573280773511886597e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732807.9478471,"finished_at":1735732807.9478471}]',NULL,'01JGGVSHPSAFAC3Y8FTS0CP364',NULL,NULL,'603783e2a6a625970a6e6d1c158cfdc5',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(12,'01JGGVSHQ04TG3HX78C1B8YXDZ','work','default',1.7357328078824045658e+09,1.73573280809504532813e+09,'-','PROCESSING',4,1,0,NULL,NULL,NULL,NULL,1,1,0,0,1,'host:31802',1.73573283794784712788e+09,1.73573280794784712789e+09,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'[{"name":"first","status":"DONE","started_at":1735732808.0950453,"finished_at":1735732808.0950453}]',NULL,'01JGGVSHPSAFAC3Y8FTS0CP364',NULL,NULL,'603783e2a6a625970a6e6d1c158cfdc5',0,30.0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,'01JGGVSJHVXX87EGQ3N1N5863Y','work','default',1.73573280825130605697e+09,1.73573280825130605697e+09,'-','PENDING',1,1,0,NULL,NULL,1.73573280825130605697e+09,NULL,0,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ac2ecb44c5e4780525dbc23d22448c36',1,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (tenant, kind, key)
) WITHOUT ROWID;
INSERT INTO "keys" VALUES('-','work','one',X'696C9423A246C064756A887F9C1DD1568C39500D0D6C6F913B5CF6936662980F','01JGGVSH1K7WZ3P7AY9JCKX9J8',1.73573280670750594136e+09);
CREATE TABLE log_state (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "log_state" VALUES('epoch','6064a7c0');
INSERT INTO "log_state" VALUES('floor','0');
CREATE TABLE queues (
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  paused INTEGER NOT NULL,
  PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
INSERT INTO "queues" VALUES('-','other',1);
CREATE TABLE records (
  tenant TEXT NOT NULL,
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, collection, name)
) WITHOUT ROWID;
CREATE TABLE rollups (
  tenant TEXT NOT NULL,
  span INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  name TEXT NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (tenant, span, at, kind, queue, name)
) WITHOUT ROWID;
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','failed:BROKEN',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','run.21',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'fail','default','wait.36',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'family','default','wait.5',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','partial',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','run.36',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'half','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'heal','default','wait.0',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','done',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','run.31',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','started',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'paint','default','wait.34',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'rest','other','submitted',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','cancelled',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','done',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.24',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','run.35',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','started',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:first',4);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','step.0:second',2);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','submitted',7);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.18',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.25',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.33',1);
INSERT INTO "rollups" VALUES('-',60,1735732800,'work','default','wait.35',1);
CREATE TABLE search_backfill (after TEXT NOT NULL, last TEXT NOT NULL);
CREATE TABLE search_terms (
  tenant TEXT NOT NULL,
  value TEXT NOT NULL,
  field TEXT NOT NULL, -- label.KEY, step or input.PATH
  kind TEXT NOT NULL,
  queue TEXT NOT NULL,
  job_id TEXT NOT NULL,
  PRIMARY KEY (tenant, value, field, kind, queue, job_id)
) WITHOUT ROWID;
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSH1K7WZ3P7AY9JCKX9J8');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSHK81E07S0SHME13ZHA6');
INSERT INTO "search_terms" VALUES('-','ann','label.of','work','default','01JGGVSHMK332TD1JY0VBDD00M');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSGVQHE8CZVJ99QHM93XW');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSH1K7WZ3P7AY9JCKX9J8');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSHQ04TG3HX78C1B8YXDZ');
INSERT INTO "search_terms" VALUES('-','first','step','work','default','01JGGVSHQ0SGJB0GCGV66T07B8');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSGVQHE8CZVJ99QHM93XW');
INSERT INTO "search_terms" VALUES('-','second','step','work','default','01JGGVSH1K7WZ3P7AY9JCKX9J8');
CREATE TABLE steps (
  job_id TEXT NOT NULL,
  name TEXT NOT NULL,
  tenant TEXT NOT NULL,
  result TEXT NOT NULL,
  at REAL NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES('01JGGVSGVQHE8CZVJ99QHM93XW','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280688028597834e+09);
INSERT INTO "steps" VALUES('01JGGVSGVQHE8CZVJ99QHM93XW','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.73573280689279174802e+09);
INSERT INTO "steps" VALUES('01JGGVSH1K7WZ3P7AY9JCKX9J8','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280713322043418e+09);
INSERT INTO "steps" VALUES('01JGGVSH1K7WZ3P7AY9JCKX9J8','second','-','"secondsecondsecondsecondsecondsecondsecondsecondsecondsecond"',1.7357328071430821419e+09);
INSERT INTO "steps" VALUES('01JGGVSHQ04TG3HX78C1B8YXDZ','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280809504532813e+09);
INSERT INTO "steps" VALUES('01JGGVSHQ0SGJB0GCGV66T07B8','first','-','"firstfirstfirstfirstfirstfirstfirstfirstfirstfirst"',1.73573280794784712789e+09);
CREATE TABLE store_id (id TEXT NOT NULL);
INSERT INTO "store_id" VALUES('83687b90721c38588feb7524b2d40a35');
CREATE TABLE tombstones (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE upload_uses (
  upload_id TEXT NOT NULL,
  job_id TEXT NOT NULL,
  tenant TEXT NOT NULL,
  PRIMARY KEY (upload_id, job_id)
) WITHOUT ROWID;
CREATE TABLE uploads (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  status TEXT NOT NULL,
  replica TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  updated_at REAL NOT NULL,
  expires_at REAL,
  record TEXT NOT NULL,
  -- the job that it creates; a separate column, because it is written once
  submission TEXT
, reserved INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "uploads" VALUES('01JGGVSGGBRE8A7074TNFZ19ZH','-','DONE','host',10,1.7357328062342839241e+09,4.73573280623428344727e+09,'{"id":"01JGGVSGGBRE8A7074TNFZ19ZH","way":"tus","name":"file","created_at":1735732806.1557221,"updated_at":1735732806.234284,"content_type":"application/octet-stream","tenant":"-","status":"DONE","replica":"host","past_service":false,"size":10,"received":10,"promised":null,"expires_at":4735732806.234283,"sha256":"01d448afd928065458cf670b60f5a594d735af0172c8d67f22a81680132681ca","detected":"","blob":"uploads/01JGGVSGGBRE8A7074TNFZ19ZH/content","chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,0);
INSERT INTO "uploads" VALUES('01JGGVSGQN460EDZW81RX4QTNK','-','UPLOADING','host',10,1.73573280649495601652e+09,4.73573280649477767936e+09,'{"id":"01JGGVSGQN460EDZW81RX4QTNK","way":"tus","name":"file","created_at":1735732806.3899705,"updated_at":1735732806.494956,"content_type":"application/octet-stream","tenant":"-","status":"UPLOADING","replica":"host","past_service":false,"size":20,"received":10,"promised":null,"expires_at":4735732806.494778,"sha256":"","detected":"","blob":null,"chunk_size":null,"chunks":"0","partial":false,"parts":[],"metadata":"","submission":null,"parameter":null,"key":null,"trace_id":null,"job_id":null,"replayed":false}',NULL,10);
CREATE TABLE write_check (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL
);
CREATE INDEX jobs_due ON jobs (due) WHERE ready = 0 AND due IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX jobs_expiry ON jobs (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX keys_at ON keys (at);
CREATE INDEX keys_job ON keys (job_id);
CREATE INDEX tombstones_at ON tombstones (at);
CREATE INDEX uploads_expiry ON uploads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX uploads_unfinished ON uploads (replica, updated_at) WHERE status = 'UPLOADING';
CREATE INDEX upload_uses_job ON upload_uses (job_id);
CREATE INDEX events_job ON events (tenant, job_id, id);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_kept ON events (at) WHERE type IN ('deleted', 'queue');
CREATE INDEX jobs_facets ON jobs (tenant, status, kind, queue, id);
CREATE INDEX jobs_code ON jobs (tenant, json_extract(error, '$.code'), status, kind, queue, id) WHERE error IS NOT NULL;
CREATE INDEX jobs_longest ON jobs (tenant, status, kind, queue, finished_at - started_at, id) WHERE finished_at - started_at >= 0.01;
CREATE INDEX uploads_tenant ON uploads (tenant, status, id);
CREATE INDEX jobs_claim ON jobs (queue, kind, tenant,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 1;
CREATE INDEX jobs_concurrency ON jobs (concurrency_key) WHERE concurrency_key IS NOT NULL AND lease_until IS NOT NULL;
CREATE INDEX jobs_blocked ON jobs (concurrency_key,
  (CASE WHEN run > 1 THEN due ELSE max(created_at, coalesce(run_at, 0)) END - 3600.0 * priority)) WHERE ready = 2;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',45);
COMMIT;
